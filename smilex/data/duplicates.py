"""Finding duplicates in a stream, in eight bytes a molecule."""

import numpy as np


class SeenHashes:
    """64-bit hashes seen so far, in sorted arrays.

    A Python set takes about ten times the memory. Arrays of like size are merged, so that only about log2(n) of them
    have to be searched. Any two of n molecules share a hash with probability n²/2⁶⁵, which is one in four thousand for
    a hundred million.

    Examples
    --------
    >>> seen = SeenHashes()
    >>> seen.add(np.array([3, 5, 3], dtype=np.uint64))
    array([ True,  True, False])
    >>> seen.add(np.array([7, 5], dtype=np.uint64))
    array([ True, False])
    """

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def add(self, hashes: np.ndarray) -> np.ndarray:
        """Add hashes, uint64 of shape (n,); return for each whether it is new, bool of shape (n,)."""
        new = np.zeros(len(hashes), dtype=bool)
        run, first = np.unique(hashes, return_index=True)
        fresh = np.ones(len(run), dtype=bool)
        for old in self._runs:
            place = np.minimum(np.searchsorted(old, run), len(old) - 1)
            fresh &= old[place] != run
        new[first[fresh]] = True
        if fresh.any():
            self._runs.append(run[fresh])
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) > len(self._runs[-2]):
            self._runs[-2:] = [np.sort(np.concatenate(self._runs[-2:]), kind="stable")]
        return new
