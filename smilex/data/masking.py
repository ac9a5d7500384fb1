"""Hiding tokens of molecules from the model."""

import numpy as np
from numpy.typing import NDArray

IGNORED = -100
"""Label of a token that is not to be predicted, as torch's cross-entropy has it."""


def num_masks(length: NDArray[np.int64] | int, mask_ratio: float) -> NDArray[np.int64]:
    """Masks of a molecule: a share of its ordinary tokens, rounded, at least one.

    The number depends on the length alone, so that molecules of one length have one expanded length and batch without
    padding.

    Parameters
    ----------
    length : int or int array
        Tokens of the molecule, [CLS] and [SEP] included.
    mask_ratio : float
        Share of the ordinary tokens.

    Returns
    -------
    int64 array
        Never more than there are ordinary tokens.

    Examples
    --------
    >>> num_masks(np.array([3, 12, 42]), 0.15).tolist()
    [1, 2, 6]
    """
    ordinary = np.asarray(length, dtype=np.int64) - 2
    return np.minimum(np.maximum(np.rint(mask_ratio * ordinary).astype(np.int64), 1), ordinary)


def mask_tokens(
    input_ids: NDArray[np.int64], mask_ratio: float, mask_id: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Replace random ordinary tokens of one molecule by [MASK].

    Parameters
    ----------
    input_ids : int array, shape (L,)
        Token ids, [CLS] first and [SEP] last.
    mask_ratio : float
        Share of the ordinary tokens to hide.
    mask_id : int
        Id of [MASK]; every chosen token becomes it, none is kept or replaced by a random one.
    rng : numpy.random.Generator
        Where the choice comes from.

    Returns
    -------
    masked : int64 array, shape (L,)
        The ids with masks.
    labels : int64 array, shape (L,)
        The hidden id at each mask, −100 elsewhere.

    Examples
    --------
    >>> masked, labels = mask_tokens(np.array([2, 20, 21, 22, 3]), 0.3, 4, np.random.default_rng(0))
    >>> int((masked == 4).sum()), int((labels != -100).sum())
    (1, 1)
    """
    masked = input_ids.astype(np.int64)
    labels = np.full_like(masked, IGNORED)
    chosen = 1 + rng.choice(len(masked) - 2, size=int(num_masks(len(masked), mask_ratio)), replace=False)
    labels[chosen] = masked[chosen]
    masked[chosen] = mask_id
    return masked, labels
