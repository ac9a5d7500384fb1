"""What is computed once and kept on disk: whole entries only, built by one process at a time."""

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from smilex.errors import SmilexError


def build_once(path: Path, build: Callable[[Path], None]) -> None:
    """Make the directory `path` unless it is there, whole or not at all; other processes wait for the first one.

    Parameters
    ----------
    path : Path
        The entry; its name has no dot. A ``.lock`` beside it stays, a ``.partial`` goes.
    build : callable
        Fills an empty directory, which becomes `path` at the end.

    Raises
    ------
    SmilexError
        The system refuses to write.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "entry"
    >>> for content in ("first", "second"):
    ...     build_once(path, lambda folder: (folder / "a.txt").write_text(content) and None)
    >>> (path / "a.txt").read_text()
    'first'
    """
    if path.exists():
        return
    partial = path.with_suffix(".partial")
    with _write_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        # The lock goes when its holder dies, so whoever holds it may clear what an earlier holder left unfinished.
        with FileLock(path.with_suffix(".lock")):
            if path.exists():  # another process was faster
                return
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            try:
                build(partial)
                partial.rename(path)
            finally:
                shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _write_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        way_out = "name another place with cache_dir or SMILEX_CACHE"
        if error.errno == errno.ENOSPC:
            raise SmilexError(f"no space left for the cache in {folder}: free some, or {way_out}") from error
        raise SmilexError(f"cannot write the cache in {folder} ({error.strerror or error}): {way_out}") from error


def molecule_bar(task: str, total: int | None, *, show: bool) -> Progress:
    """Count molecules on stderr; the bar has one task, whose total may be unknown."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), disable=not show)
    bar.add_task(task, total=total)
    return bar
