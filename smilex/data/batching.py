"""Which molecules form which batch: batches of like lengths within a budget of tokens."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smilex.errors import SmilexError


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

    Parameters
    ----------
    lengths : int array, shape (n,)
        What each molecule costs, in tokens.
    tokens_per_batch : int, optional
        Tokens of a batch, at most; a molecule that is longer forms a batch of its own.
    seed : int, default 0
        Seed of the order.
    molecules_per_batch : int, optional
        Molecules of a batch, in place of `tokens_per_batch`; the longest ones may be fewer.

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
        lengths: NDArray[np.int64],
        tokens_per_batch: int | None = None,
        seed: int = 0,
        *,
        molecules_per_batch: int | None = None,
    ) -> None:
        if not len(lengths):
            raise SmilexError("there is no molecule to batch")
        self._lengths = np.asarray(lengths)
        self._seed = seed
        if tokens_per_batch is not None:
            if tokens_per_batch < 1:
                raise SmilexError(f"tokens_per_batch must be positive, not {tokens_per_batch}")
            self._ends = _batch_ends(np.sort(self._lengths), tokens_per_batch)
        else:
            size = molecules_per_batch or 0
            if size < 1:
                raise SmilexError(f"molecules_per_batch must be positive, not {molecules_per_batch}")
            self._ends = [*range(size, len(lengths), size), len(lengths)]
        self._epoch = -1
        self._batches: list[NDArray[np.int64]] = []

    @property
    def per_epoch(self) -> int:
        """Batches that cover each molecule once."""
        return len(self._ends)

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """Row numbers of batch `index`, counted through all epochs."""
        epoch, place = divmod(index, self.per_epoch)
        if epoch != self._epoch:
            rng = np.random.default_rng((self._seed, epoch))
            order = np.lexsort((rng.random(len(self._lengths)), self._lengths))
            self._batches = np.split(order, self._ends[:-1])
            rng.shuffle(self._batches)
            self._epoch = epoch
        return self._batches[place]


def _batch_ends(sorted_lengths: NDArray[np.int64], tokens_per_batch: int) -> list[int]:
    """Where each batch of the sorted molecules ends.

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
