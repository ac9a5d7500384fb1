"""Parts that have the labels in the same shares, for any number of tasks and with labels missing.

Iterative stratification [1]_: the rarest label is handed out first, each molecule to the part that lacks it most.
scikit-learn's StratifiedShuffleSplit does this for one task without missing labels; this does it for all.

References
----------
.. [1] Sechidis, Tsoumakas and Vlahavas, On the stratification of multi-label data, ECML PKDD 2011, 145.
   doi:10.1007/978-3-642-23808-6_10
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PER_BIN = 10
"""Measured values that share a bin, at least: one goes to a part of a tenth."""

MOST_BINS = 10


def label_indicators(targets: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which labels each row has: the two classes of a task, or ranges of a measured value.

    Parameters
    ----------
    targets : float64 array of shape (n, tasks)
        Labels, NaN where missing. A task with labels other than 0 and 1 is cut into ten ranges of equal count, or
        into fewer where a range would have less than ten labels.

    Returns
    -------
    bool array of shape (n, labels)

    Examples
    --------
    >>> label_indicators(np.array([[0.0], [1.0], [np.nan]])).astype(int)
    array([[1, 0],
           [0, 1],
           [0, 0]])
    """
    columns = []
    for values in targets.T:
        present = ~np.isnan(values)
        binary = np.isin(values[present], (0, 1)).all()
        bins = values[present] if binary else _bin(values[present])
        columns += [
            np.isin(np.arange(len(values)), np.flatnonzero(present)[bins == label]) for label in np.unique(bins)
        ]
    return np.stack(columns, axis=1) if columns else np.zeros((len(targets), 0), dtype=np.bool_)


def _bin(values: NDArray[np.float64]) -> NDArray[np.int64]:
    count = min(MOST_BINS, max(1, len(values) // PER_BIN))
    edges = np.quantile(values, np.arange(1, count) / count)
    return np.searchsorted(edges, values, side="right")


def assign(
    labels: NDArray[np.integer], sizes: NDArray[np.integer], shares: Sequence[float], seed: int
) -> NDArray[np.int64]:
    """Hand out groups of rows to parts.

    Parameters
    ----------
    labels : int array of shape (groups, labels)
        How many rows of each group have each label.
    sizes : int array of shape (groups,)
        Rows of each group.
    shares : sequence of float
        Share of the rows that each part gets.
    seed : int
        Decides the order of the groups, and between parts that lack a label equally.

    Returns
    -------
    int64 array of shape (groups,)
        The part of each group.

    Examples
    --------
    >>> parts = assign(np.array([[1, 0], [1, 0], [0, 1], [0, 1]]), np.ones(4, dtype=np.int64), (0.5, 0.5), seed=0)
    >>> sorted(parts[:2].tolist()), sorted(parts[2:].tolist())
    ([0, 1], [0, 1])
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(sizes))
    left = labels.sum(axis=0, dtype=np.int64)
    lacking = np.outer(shares, left)  # rows of each label that each part is still to get
    room = np.asarray(shares) * sizes.sum()
    part_of = np.full(len(sizes), -1, dtype=np.int64)

    def place(group: int, wanted: NDArray[np.float64]) -> None:
        part = int(np.lexsort((rng.random(len(room)), room, wanted))[-1])
        part_of[group] = part
        left[:] -= labels[group]
        lacking[part] -= labels[group]
        room[part] -= sizes[group]

    while left.any():
        rarest = int(np.argmin(np.where(left > 0, left, np.inf)))
        for group in order[(part_of[order] < 0) & (labels[order, rarest] > 0)]:
            place(group, lacking[:, rarest])
    for group in order[part_of[order] < 0]:
        place(group, room)
    return part_of
