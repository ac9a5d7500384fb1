"""Writing a file whole or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from smilex.errors import SmilexError


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary name to write to; what was written there becomes `path` at the end.

    So a reader sees the old file or the whole new one, also after a crash or a loss of power. The temporary file lies
    in the folder of `path`, its name ends in that of `path`, and it is gone after an error of any kind.

    Parameters
    ----------
    path : Path
        The file to write; an existing one is replaced.

    Yields
    ------
    Path
        The name to write to.

    Raises
    ------
    SmilexError
        If the system refuses to write; the message names `path` and the reason.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.txt"
    ...     with whole_file(path) as partial:
    ...         _ = partial.write_text("CCO")
    ...         before = path.exists()
    ...     before, path.read_text()
    (False, 'CCO')
    """
    # Random, as threads and machines that share a file system may write the same file.
    partial = path.with_name(f".{secrets.token_hex(4)}-{path.name}")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())  # or the new name could reach the disk before the content
        partial.replace(path)
    except OSError as error:
        raise SmilexError(
            f"cannot write {path}: {error.strerror or error}; free space or name another place"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # also where its folder is no folder
            partial.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8 with the line ends of `text`, whole or not at all.

    Raises
    ------
    SmilexError
        As `whole_file` does.
    """
    with whole_file(path) as partial:
        partial.write_bytes(text.encode())
