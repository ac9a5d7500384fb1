"""Work in parallel processes, with results in order and memory that stays flat."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future
from typing import TypeVar

from joblib.externals.loky import ProcessPoolExecutor  # type: ignore[import-untyped]

from smilex.errors import SmilexError

T = TypeVar("T")


def in_order(function: Callable[..., T], calls: Iterable[tuple[object, ...]], num_workers: int) -> Iterator[T]:
    """Yield ``function(*call)`` for each call, in order, computed by worker processes.

    Calls are taken from the iterable as results are consumed; no more than two per worker, and one, wait at a time.

    Raises
    ------
    SmilexError
        A worker died.

    Examples
    --------
    >>> list(in_order(pow, [(2, 1), (2, 2), (2, 3)], num_workers=2))
    [2, 4, 8]
    """
    # loky's processes, unlike those of multiprocessing, neither fork one that has threads nor run the user's script.
    with ProcessPoolExecutor(num_workers, initializer=_leave_with, initargs=(os.getpid(),)) as pool:
        pending: deque[Future[T]] = deque()
        try:
            for call in calls:
                pending.append(pool.submit(function, *call))
                if len(pending) > 2 * num_workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenExecutor as error:
            raise SmilexError("a worker process died, as when memory runs out: try again with num_workers=1") from error


def _leave_with(parent: int) -> None:
    """End this worker when its parent is gone; after a kill -9 of the parent it would wait for work for ever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
