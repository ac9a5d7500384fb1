"""What the figures of arrays share: the check of their input, and blocks of rows that keep memory flat."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smilex.errors import SmilexError

BLOCK_VALUES = 1 << 22
"""Numbers that a block holds: 32 MiB in float64."""


def as_vectors(vectors: ArrayLike, name: str = "vectors") -> NDArray[np.floating]:
    """Return an array of vectors, one a row, float32 or float64.

    Raises
    ------
    SmilexError
        If it is not of shape (n, d) with n and d at least 1, or holds NaN or infinity, as the rows of invalid molecules
        do.

    Examples
    --------
    >>> as_vectors([[1, 2], [3, 4]]).dtype
    dtype('float64')
    """
    array = np.asarray(vectors)
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiub":
        raise SmilexError(
            f"{name} must be numbers of shape (n, d), n and d at least 1, not {array.dtype} {array.shape}"
        )
    array = array.astype(np.promote_types(array.dtype, np.float32), copy=False)
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        rows = np.flatnonzero(~finite)
        raise SmilexError(
            f"{name}: NaN or infinity in {len(rows)} of {len(array)} rows, first in row {rows[0]}; leave them out"
        )
    return array


def unit_vectors(vectors: ArrayLike, name: str = "vectors") -> NDArray[np.float64]:
    """Return the vectors divided by their L2 norms, in float64.

    Raises
    ------
    SmilexError
        As `as_vectors`, or if a vector is zero: it has no direction.

    Examples
    --------
    >>> unit_vectors([[3, 4]]).tolist()
    [[0.6, 0.8]]
    """
    array = as_vectors(vectors, name).astype(np.float64)
    largest = np.abs(array).max(axis=1, keepdims=True)
    if not largest.all():
        raise SmilexError(f"{name}: row {int(np.argmin(largest))} is zero and has no direction")
    array /= largest  # so that squares neither overflow nor vanish
    array /= np.linalg.norm(array, axis=1, keepdims=True)
    return array


def blocks(rows: int, width: int) -> Iterator[slice]:
    """Cut rows into blocks of about `BLOCK_VALUES` numbers, at least one row each.

    Examples
    --------
    >>> list(blocks(3, BLOCK_VALUES // 2))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    step = max(1, BLOCK_VALUES // width)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
