"""Several processes that train together, as torchrun and accelerate launch start them.

All of them run the same program. The first one, of rank 0, writes and speaks for all.
"""

import atexit
import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from smilex.errors import OneProcessError, SmilexError

T = TypeVar("T")


def process_index() -> int:
    """Rank of this process in its job; 0 for the first one, and for the only one."""
    return int(os.environ.get("RANK", "0"))


def is_first_process() -> bool:
    """Whether this is the first process of its job, or the only one."""
    return process_index() == 0


def is_first_on_computer() -> bool:
    """Whether this is the first process of its job on this computer, or the only one."""
    return int(os.environ.get("LOCAL_RANK", "0")) == 0


def process_count() -> int:
    """Count the processes of this job; the first call in each of them waits until all have called.

    Examples
    --------
    >>> process_count()
    1
    """
    if not _launched_with_others():
        return 1
    import torch
    from accelerate import PartialState

    _leave_at_exit()
    # Without a GPU accelerate keeps to one process unless it is told that the CPU is meant.
    return PartialState(cpu=not torch.cuda.is_available()).num_processes


@cache
def _leave_at_exit() -> None:
    """Have the threads of gloo end before the interpreter does: one that still frees a tensor then ends in an abort."""
    import torch.distributed as dist

    def leave() -> None:
        if dist.is_initialized() and dist.get_backend() == dist.Backend.GLOO:
            gc.collect()  # models of a finished training hold the group
            dist.destroy_process_group()

    atexit.register(leave)


def _launched_with_others() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def refuse_many_processes(what: str) -> None:
    """Refuse to go on as one of several processes.

    Raises
    ------
    SmilexError
        If there are several.
    """
    if _launched_with_others():
        raise SmilexError(f"{what} runs in one process: start it without torchrun or accelerate launch")


def from_first(function: Callable[[], T]) -> T:
    """Call a function in the first process alone; every process returns its result or raises its error.

    Parameters
    ----------
    function : callable
        Takes nothing. Its result is pickled for the others.

    Raises
    ------
    SmilexError, OSError
        In all processes, if the function raises it in the first.

    Examples
    --------
    >>> from_first(lambda: "here there is one process only")
    'here there is one process only'
    """
    if process_count() == 1:
        return function()
    from accelerate.utils import broadcast_object_list

    answer: list = [None, None]
    if is_first_process():
        try:
            answer[0] = function()
        except (SmilexError, OSError) as error:
            answer[1] = error
    broadcast_object_list(answer)
    result, failure = answer
    if failure is not None:
        raise failure
    return result


def wait_for_all() -> None:
    """Wait until every process of the job has come here."""
    if process_count() > 1:
        from accelerate import PartialState

        PartialState().wait_for_everyone()


@contextmanager
def together() -> Iterator[None]:
    """Say in one line what ends this process, while several work in step.

    When one of them ends, the others wait for it in vain, or are ended by what started them.

    Raises
    ------
    OneProcessError
        In place of a SmilexError, which the other processes cannot know of; if another process has ended; or if this
        one is told to end.
    """
    if process_count() == 1:
        yield
        return
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
        signal.signal(signal.SIGTERM, before)
    except OneProcessError:
        raise
    except SmilexError as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this process ends by itself, when it has said why
        raise OneProcessError(f"{_name()}: {error}") from error
    except RuntimeError as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not _is_lost_connection(error):
            raise
        raise OneProcessError(
            f"{_name()} has lost another process of the job, and so it ends; go on with resume=True"
        ) from error


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise OneProcessError(
        f"{_name()} was told to end, as happens when another one of the job has ended; go on with resume=True"
    )


def _name() -> str:
    return f"process {os.environ['RANK']} of {os.environ['WORLD_SIZE']}"


def _is_lost_connection(error: RuntimeError) -> bool:
    import torch.distributed as dist

    # gloo reports a lost connection as a bare RuntimeError of its transport.
    return isinstance(error, dist.DistError) or "gloo/transport" in str(error)
