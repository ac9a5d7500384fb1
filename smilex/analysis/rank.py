"""How many directions a set of vectors uses."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smilex.analysis.arrays import as_vectors, blocks
from smilex.errors import SmilexError

ROUNDING = 1e-10
"""Share of the total by which a sum may miss the threshold: rounding, not rank."""


def effective_rank(vectors: ArrayLike, threshold: float = 0.9) -> int:
    """Count the directions that hold most of a matrix: its effective rank [1]_.

    Parameters
    ----------
    vectors : array, shape (n, d)
        One vector a row, not centred.
    threshold : float, default 0.9
        Share to be held, above 0 and at most 1.

    Returns
    -------
    int
        The smallest r such that the r largest squared singular values sum to at least `threshold` of the total;
        0 where all vectors are zero. With a threshold of 1, directions with less than 1e-10 of the total do not count.

    Raises
    ------
    SmilexError
        If `vectors` is no such array or holds NaN, or `threshold` is out of range.

    References
    ----------
    .. [1] Meng et al., ICLR 2024, arXiv 2302.02060.

    Examples
    --------
    >>> effective_rank(np.diag([4.0, 1.0, 0.1])), effective_rank(np.eye(10)), effective_rank(np.ones((5, 3)))
    (1, 9, 1)
    """
    array = as_vectors(vectors)
    scale = float(np.abs(array).max()) or 1.0  # so that squares neither overflow nor vanish
    if array.shape[0] < array.shape[1]:  # the singular values are those of the transpose
        array = array.T
    total = np.zeros((array.shape[1], array.shape[1]))
    for block in blocks(*array.shape):
        total += gram(array[block] / np.float64(scale))
    return gram_rank(total, threshold)


def gram(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return XᵀX in float64, shape (d, d); those of several blocks of rows add up to that of all."""
    array = vectors.astype(np.float64, copy=False)
    return array.T @ array


def gram_rank(total: NDArray[np.float64], threshold: float) -> int:
    """Return the effective rank of a matrix X from XᵀX: its eigenvalues are the squared singular values of X.

    Parameters
    ----------
    total : float64 array, shape (d, d)
        XᵀX.
    threshold : float
        As for `effective_rank`.

    Examples
    --------
    >>> gram_rank(np.diag([8.0, 1.0, 1.0]), 0.9)
    2
    """
    if not 0 < threshold <= 1:
        raise SmilexError(f"threshold is a share above 0 and at most 1, not {threshold}")
    squared = np.linalg.eigvalsh(total)[::-1].clip(min=0.0)  # largest first; rounding makes zeros negative
    sums = np.cumsum(squared)
    if sums[-1] == 0:
        return 0
    return 1 + int(np.argmax(sums >= (threshold - ROUNDING) * sums[-1]))
