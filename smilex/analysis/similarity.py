"""What the directions of vectors say: retrieval, alignment and uniformity, agreement with fingerprints."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from smilex.analysis.arrays import as_vectors, blocks, unit_vectors
from smilex.errors import SmilexError

TIE = 1e-9
"""Cosine similarities closer than this are equal: float32 vectors that are equal but for rounding differ by less."""

MOST_PAIRS = 2_000_000
"""Pairs that a rank correlation is taken over: its error from sampling is below 0.001."""


def retrieval_accuracy(queries: ArrayLike, keys: ArrayLike, molecules: ArrayLike | None = None) -> float:
    """Share of the queries whose nearest key, by cosine similarity, is the key of the same row: accuracy@1.

    Where several keys are nearest, a query counts with the share of the right ones among them, which is the chance
    that a blind choice is right. So an encoder whose vectors are all equal has an accuracy of 1/n.

    Parameters
    ----------
    queries, keys : array, shape (n, d)
        Two vectors of each molecule. Their lengths do not matter.
    molecules : array of int or str, shape (n,), optional
        Which molecule each row is. Rows of one molecule are right answers to each other. By default all differ.

    Returns
    -------
    float
        From 0 to 1. The error that xsim reports is 1 minus this.

    Raises
    ------
    SmilexError
        If the shapes do not fit, or a vector is zero or holds NaN.

    Examples
    --------
    >>> retrieval_accuracy(np.eye(3), np.eye(3)), retrieval_accuracy(np.ones((4, 2)), np.ones((4, 2)))
    (1.0, 0.25)
    >>> retrieval_accuracy([[1, 0], [1, 0]], [[1, 0], [1, 0]], molecules=["CCO", "CCO"])
    1.0
    """
    asked, answers = _pair(queries, keys)
    names = np.arange(len(asked)) if molecules is None else np.asarray(molecules)
    if names.shape != (len(asked),):
        raise SmilexError(f"molecules must be of shape ({len(asked)},), not {names.shape}")
    names = np.unique(names, return_inverse=True)[1]
    right = 0.0
    for block in blocks(len(asked), len(answers)):
        cosine = asked[block] @ answers.T
        nearest = cosine >= cosine.max(axis=1, keepdims=True) - TIE
        same = names[block, None] == names
        right += float(((nearest & same).sum(axis=1) / nearest.sum(axis=1)).sum())
    return right / len(asked)


def alignment(vectors: ArrayLike, twins: ArrayLike) -> float:
    """Mean squared distance of L2-normalised twins [1]_.

    Parameters
    ----------
    vectors, twins : array, shape (n, d)
        Two vectors of each molecule.

    Returns
    -------
    float
        From 0 (twins are equal) to 4 (they are opposite).

    Raises
    ------
    SmilexError
        If the shapes do not fit, or a vector is zero or holds NaN.

    References
    ----------
    .. [1] Wang and Isola, ICML 2020, arXiv 2005.10242.

    Examples
    --------
    >>> alignment([[1, 0], [0, 2]], [[3, 0], [0, -1]])
    2.0
    """
    first, second = _pair(vectors, twins)
    return float(((first - second) ** 2).sum(axis=1).mean())


def uniformity(vectors: ArrayLike) -> float:
    """Logarithm of the mean of exp(−2 · squared distance) over all pairs of L2-normalised vectors [1]_.

    Parameters
    ----------
    vectors : array, shape (n, d)
        One vector a row, at least two.

    Returns
    -------
    float
        From −8 to 0; the lower, the more evenly the vectors cover the sphere. 0 where all are equal.

    Raises
    ------
    SmilexError
        If there is one vector only, or a vector is zero or holds NaN.

    References
    ----------
    .. [1] Wang and Isola, ICML 2020, arXiv 2005.10242.

    Examples
    --------
    >>> round(uniformity([[1, 0], [0, 1]]), 6)  # squared distance 2
    -4.0
    """
    unit = _at_least_two(unit_vectors(vectors))
    total = 0.0
    for block in blocks(len(unit), len(unit)):
        later = unit[block] @ unit[block.start :].T  # pairs of which the first is in the block
        total += float(np.triu(np.exp(4.0 * later - 4.0), k=1).sum())
    pairs = len(unit) * (len(unit) - 1) // 2
    return min(0.0, float(np.log(total / pairs)))  # rounding could give a little more


def neighbourhood_agreement(vectors: ArrayLike, fingerprints: ArrayLike, *, seed: int = 0) -> float | None:
    """Spearman's rank correlation of cosine with Tanimoto similarity, over pairs of molecules.

    All pairs count where there are at most two million (2 000 molecules); of more molecules, two million random pairs.

    Parameters
    ----------
    vectors : array, shape (n, d)
        One vector a molecule, at least two.
    fingerprints : array of 0 and 1 or bool, shape (n, bits)
        Fingerprints of the same molecules, such as `smilex.baselines.ecfp4` gives.
    seed : int, default 0
        Seed of the random pairs.

    Returns
    -------
    float or None
        From −1 to 1; ties have their mean rank. None where all similarities of one kind are equal.

    Raises
    ------
    SmilexError
        If the shapes do not fit, there is one molecule only, or a vector is zero or holds NaN.

    Examples
    --------
    >>> vectors = [[1, 0], [0.9, 0.1], [0, 1]]
    >>> round(neighbourhood_agreement(vectors, [[1, 1, 0], [1, 1, 1], [0, 0, 1]]), 6)
    1.0
    """
    unit = _at_least_two(unit_vectors(vectors))
    bits = as_vectors(fingerprints, "fingerprints") != 0
    if len(bits) != len(unit):
        raise SmilexError(f"{len(unit)} vectors, but fingerprints of {len(bits)} molecules")
    first, second = _pairs(len(unit), seed)
    # Rounded, as equal similarities must be tied.
    cosine = pd.Series(_cosine(unit, first, second).round(9)).rank().to_numpy()
    tanimoto = pd.Series(_tanimoto(bits, first, second)).rank().to_numpy()
    if np.ptp(cosine) == 0 or np.ptp(tanimoto) == 0:
        return None
    return float(np.corrcoef(cosine, tanimoto)[0, 1])


def _pair(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    one, other = unit_vectors(first, "first vectors"), unit_vectors(second, "second vectors")
    if one.shape != other.shape:
        raise SmilexError(f"two vectors of each molecule must have one shape, not {one.shape} and {other.shape}")
    return one, other


def _at_least_two(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(vectors) < 2:
        raise SmilexError("there are no pairs: give at least 2 vectors")
    return vectors


def _pairs(count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All pairs of different rows, or random ones where those are too many."""
    if count * (count - 1) // 2 <= MOST_PAIRS:
        first, second = np.triu_indices(count, k=1)
        return first, second
    rng = np.random.default_rng(seed)
    first = rng.integers(count, size=MOST_PAIRS)
    return first, (first + rng.integers(1, count, size=MOST_PAIRS)) % count


def _cosine(unit: NDArray[np.float64], first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
    found = np.empty(len(first))
    for block in blocks(len(first), unit.shape[1]):
        found[block] = np.einsum("nd,nd->n", unit[first[block]], unit[second[block]])
    return found


def _tanimoto(bits: NDArray[np.bool_], first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
    """Bits in common, divided by bits in either; 0 where neither has any, as RDKit has it."""
    packed = np.packbits(bits, axis=1)
    on = bits.sum(axis=1)
    common = np.empty(len(first), dtype=np.int64)
    for block in blocks(len(first), packed.shape[1]):
        common[block] = np.bitwise_count(packed[first[block]] & packed[second[block]]).sum(axis=1, dtype=np.int64)
    either = on[first] + on[second] - common
    return common / np.maximum(either, 1)
