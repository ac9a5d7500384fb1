"""Hiding tokens of molecules from the model: which ones, and how many."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from smilex.chem import chemical_groups, parse
from smilex.data.molecules import Molecule
from smilex.errors import InvalidSmilesError
from smilex.tokenization import align_tokens

IGNORED = -100
"""Label of a token that is not to be predicted, as torch's cross-entropy has it."""

_SPAN_END = 0.2
"""Chance that a span ends after each of its tokens, as in SpanBERT (Joshi et al., TACL 2020, arXiv 1907.10529)."""

_LONGEST_SPAN = 10


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
    molecule: Molecule, mask_ratio: float, mask_id: int, rng: np.random.Generator, masking: str = "random"
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Replace ordinary tokens of one molecule by [MASK]; how many depends on its length alone, see `num_masks`.

    Parameters
    ----------
    molecule : Molecule
        Its ids have [CLS] first and [SEP] last.
    mask_ratio : float
        Share of the ordinary tokens to hide.
    mask_id : int
        Id of [MASK]; every chosen token becomes it, none is kept or replaced by a random one.
    rng : numpy.random.Generator
        Where the choice comes from.
    masking : {"random", "span", "group"}, default "random"
        Which tokens: any; runs of 1 to 10 neighbours; or functional groups and rings.

    Returns
    -------
    masked : int64 array, shape (L,)
        The ids with masks.
    labels : int64 array, shape (L,)
        The hidden id at each mask, −100 elsewhere.

    Examples
    --------
    >>> acid = Molecule.read("CCCCCC(=O)O")
    >>> for masking in MASKINGS:
    ...     masked, _ = mask_tokens(acid, 0.35, 4, np.random.default_rng(0), masking)
    ...     print("".join("?" if token == 4 else "_" for token in masked[1:-1]))
    __?__??__?_
    _????______
    _____?_??_?
    """
    masked = molecule.input_ids.astype(np.int64)
    labels = np.full_like(masked, IGNORED)
    chosen = 1 + MASKINGS[masking](molecule, int(num_masks(len(masked), mask_ratio)), rng)
    labels[chosen] = masked[chosen]
    masked[chosen] = mask_id
    return masked, labels


def _random_places(molecule: Molecule, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.choice(len(molecule.input_ids) - 2, size=count, replace=False)


def _span_places(molecule: Molecule, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the lengths of the spans first, then the numbers of free tokens between them."""
    lengths = np.minimum(rng.geometric(_SPAN_END, size=count), _LONGEST_SPAN)
    ends = lengths.cumsum()
    spans = int(np.searchsorted(ends, count)) + 1
    lengths = lengths[:spans]
    lengths[-1] -= ends[spans - 1] - count
    rng.shuffle(lengths)  # or the shortened one would always be the last
    free = len(molecule.input_ids) - 2 - count
    free_before = np.sort(rng.choice(free + spans, size=spans, replace=False)) - np.arange(spans)
    return np.repeat(free_before, lengths) + np.arange(count)  # so many free and so many hidden tokens stand before it


def _group_places(molecule: Molecule, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Take whole groups, in random order, where they fit; fill up with parts of the others, then with any tokens."""
    chosen: dict[int, None] = {}
    groups = group_tokens(molecule.smiles)
    too_large = []
    for index in rng.permutation(len(groups)):
        new = [place for place in groups[index] if place not in chosen]
        if len(new) <= count - len(chosen):
            chosen |= dict.fromkeys(new)
        else:
            too_large.append(new)
    for group in too_large:
        # A part of a group is a run of its tokens from anywhere.
        start = int(rng.integers(len(group)))
        chosen |= dict.fromkeys(group[start:] + group[:start])
    chosen |= dict.fromkeys(rng.permutation(len(molecule.input_ids) - 2).tolist())
    return np.array(list(chosen)[:count])


@lru_cache(maxsize=65_536)  # some 60 MB at most; a small corpus is read in its first epoch only
def group_tokens(smiles: str) -> tuple[tuple[int, ...], ...]:
    """Give the tokens of each functional group and ring: its atoms, and the bonds and ring closures between them.

    Parameters
    ----------
    smiles : str
        A molecule.

    Returns
    -------
    tuple of tuple of int
        Places among the tokens of the SMILES, [CLS] and [SEP] not counted, for each group of
        `smilex.chem.chemical_groups`. Parentheses belong to none. Empty for a string that RDKit cannot read.

    Examples
    --------
    >>> group_tokens("CC(=O)OC1CC1")  # the ester, then the ring
    ((1, 3, 4, 6), (7, 8, 9, 10, 11))
    """
    try:
        groups, owners = chemical_groups(parse(smiles)), align_tokens(smiles)
    except InvalidSmilesError:  # RDKit writes a few molecules that it does not read
        return ()
    atoms = [set(owner) if isinstance(owner, tuple) else {owner} for owner in owners]
    return tuple(tuple(place for place, written in enumerate(atoms) if written <= group) for group in groups)


MASKINGS: dict[str, Callable[[Molecule, int, np.random.Generator], NDArray[np.int64]]] = {
    "random": _random_places,
    "span": _span_places,
    "group": _group_places,
}
"""Ways to choose tokens: of a molecule, so many, by chance; places among its ordinary tokens."""
