"""Which molecules form which batch: batches of like lengths within a budget of tokens."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from smilex.errors import SmilexError

RUN = 1_000
"""Molecules that lie side by side in a corpus and are batched together: few enough to mix well, many enough to read."""

RUNS_PER_BLOCK = 1_000


def pad(rows: Sequence[NDArray[np.integer]], value: int) -> NDArray[np.int64]:
    """Stack rows of different lengths, filled up with `value` on the right.

    Examples
    --------
    >>> pad([np.array([2, 7, 3]), np.array([2, 3])], 0).tolist()
    [[2, 7, 3], [2, 3, 0]]
    """
    stacked = np.full((len(rows), max(map(len, rows))), value, dtype=np.int64)
    for target, row in zip(stacked, rows, strict=True):
        target[: len(row)] = row
    return stacked


class LengthBatches:
    """An endless, seeded sequence of batches; batch i depends on the seed and on i alone.

    Molecules are sorted by length, equals in random order, and cut into batches whose tokens, padding included, keep
    to the budget, or into batches of so many molecules; the batches of an epoch come in random order. So a run can be
    taken up at any batch, or shared out among processes, without a word between them.

    More than a million molecules are sorted a block at a time, so that their lengths are all that has to be in memory
    of more. A block is made of runs of neighbours from all over the corpus, which are the same in each epoch; the order
    of the blocks is not.

    Parameters
    ----------
    lengths : int array, shape (n,)
        Tokens of each molecule.
    tokens_per_batch : int, optional
        Tokens of a batch, at most; a molecule that is longer forms a batch of its own.
    seed : int, default 0
        Seed of the order.
    molecules_per_batch : int, optional
        Molecules of a batch, in place of `tokens_per_batch`; the longest ones of a block may be fewer.
    encoded : callable, optional
        Lengths → what molecules of these lengths cost, in tokens, where that is something else.

    Raises
    ------
    SmilexError
        If there is no molecule or the budget is not positive.

    Examples
    --------
    >>> batches = LengthBatches(np.array([5, 5, 5, 9]), tokens_per_batch=10)
    >>> batches.per_epoch
    3
    >>> sorted(sorted(batches[i].tolist()) for i in range(3))[-1]
    [3]
    """

    def __init__(
        self,
        lengths: NDArray[np.integer],
        tokens_per_batch: int | None = None,
        seed: int = 0,
        *,
        molecules_per_batch: int | None = None,
        encoded: Callable[[NDArray[np.int64]], NDArray[np.int64]] | None = None,
    ) -> None:
        if not len(lengths):
            raise SmilexError("there is no molecule to batch")
        if tokens_per_batch is not None:
            self._ends = partial(_ends_within, tokens_per_batch=_positive("tokens_per_batch", tokens_per_batch))
        else:
            self._ends = partial(_ends_of, size=_positive("molecules_per_batch", molecules_per_batch or 0))
        self._lengths = np.asarray(lengths)
        self._encoded = encoded
        self._seed = seed
        runs = np.random.default_rng(seed).permutation(-(-len(lengths) // RUN))
        self._blocks = [np.sort(runs[start : start + RUNS_PER_BLOCK]) for start in range(0, len(runs), RUNS_PER_BLOCK)]
        counts = [len(self._ends(np.sort(self._costs(self._rows(block))))) for block in range(len(self._blocks))]
        self._counts = np.array(counts)
        self.per_epoch = sum(counts)
        """Batches that cover each molecule once."""
        self._epoch = -1
        self._block = -1
        self._batches: list[NDArray[np.int64]] = []

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """Row numbers of batch `index`, counted through all epochs."""
        epoch, place = divmod(index, self.per_epoch)
        if epoch != self._epoch:
            self._epoch, self._block = epoch, -1
            self._order = np.random.default_rng((self._seed, epoch, len(self._blocks))).permutation(len(self._blocks))
            self._last = self._counts[self._order].cumsum()
        turn = int(np.searchsorted(self._last, place, side="right"))
        self._cut(int(self._order[turn]))
        return self._batches[place - int(self._last[turn])]

    def _cut(self, block: int) -> None:
        """Cut a block into the batches of this epoch, unless it was the last one that was cut."""
        if block != self._block:
            rows = self._rows(block)
            costs = self._costs(rows)
            rng = np.random.default_rng((self._seed, self._epoch, block))
            order = np.lexsort((rng.random(len(rows)), costs))
            self._batches = np.split(rows[order], self._ends(costs[order])[:-1])
            rng.shuffle(self._batches)
            self._block = block

    def _rows(self, block: int) -> NDArray[np.int64]:
        """Rows of a block, in the order of the corpus."""
        rows = (self._blocks[block][:, None] * RUN + np.arange(RUN)).ravel()
        return rows[rows < len(self._lengths)]

    def _costs(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        lengths = self._lengths[rows].astype(np.int64)
        return lengths if self._encoded is None else self._encoded(lengths)


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise SmilexError(f"{name} must be positive, not {value}")
    return value


def _ends_of(sorted_lengths: NDArray[np.int64], size: int) -> list[int]:
    """Where each batch of so many molecules ends."""
    return [*range(size, len(sorted_lengths), size), len(sorted_lengths)]


def _ends_within(sorted_lengths: NDArray[np.int64], tokens_per_batch: int) -> list[int]:
    """Where each batch ends that keeps to a budget of tokens.

    A batch costs its size times its longest, last molecule, which grows with the size: the largest size within the
    budget is found by bisection.
    """
    ends: list[int] = []
    start = 0
    while start < len(sorted_lengths):
        low, high = 1, max(1, min(len(sorted_lengths) - start, tokens_per_batch // int(sorted_lengths[start])))
        while low < high:
            size = (low + high + 1) // 2
            if size * int(sorted_lengths[start + size - 1]) <= tokens_per_batch:
                low = size
            else:
                high = size - 1
        start += low
        ends.append(start)
    return ends
