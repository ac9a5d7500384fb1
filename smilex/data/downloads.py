"""Fetching a public file: whole and checked, or not at all."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from smilex.errors import SmilexError
from smilex.writing import whole_file, write_text

SECONDS = 30
"""How long a server may stay silent."""


def download(url: str, path: Path, check: Callable[[Path], object], sha256: str | None = None) -> None:
    """Download a file, with a progress bar where stderr is a terminal.

    The bytes go to a temporary name beside `path`, are checked there and then renamed. Their SHA-256 is kept in
    ``NAME.sha256`` beside the file, in the format of the program sha256sum. urllib of the standard library does the
    transfer: one GET needs no further dependency, and proxies are taken from the environment.

    Parameters
    ----------
    url : str
        Where the file is.
    path : Path
        The file to write; its folder is made.
    check : callable
        Called with the path of the temporary file, which ends in the name of `path`; raises SmilexError where the
        content is not what it should be.
    sha256 : str, optional
        What the SHA-256 (hex) must be, where it is known.

    Raises
    ------
    SmilexError
        If the server cannot be reached, refuses, stops early or stays silent for 30 s; the content is wrong; or the
        file cannot be written. Then no file is left behind.
    """
    with whole_file(path) as partial:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            found = _transfer(url, file.write)
        if sha256 not in (None, found):
            raise SmilexError(f"{url} has SHA-256 {found}, not {sha256}: the file there is another one or damaged")
        _check_content(check, partial, url)
        write_text(_sidecar(path), f"{found}  {path.name}\n")


def check_unchanged(path: Path) -> None:
    """Refuse a file that is no longer what was downloaded; one without a recorded SHA-256 passes.

    Raises
    ------
    SmilexError
        If the content has another SHA-256 than the one beside it.
    """
    sidecar = _sidecar(path)
    if not sidecar.is_file():
        return
    recorded = sidecar.read_text(encoding="utf-8").split(maxsplit=1)
    if recorded[:1] != [hashlib.sha256(path.read_bytes()).hexdigest()]:
        raise SmilexError(f"{path} has changed since its download (see {sidecar.name}): delete both to download again")


def _check_content(check: Callable[[Path], object], partial: Path, url: str) -> None:
    try:
        check(partial)
    except SmilexError as error:  # the file is gone when its name is read: name the address instead
        raise SmilexError(str(error).replace(str(partial), url)) from error


def _sidecar(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _transfer(url: str, write: Callable[[bytes], object]) -> str:
    """Hand on the content of a URL block by block and return its SHA-256."""
    digest = hashlib.sha256()
    received = 0
    try:
        response = urllib.request.urlopen(url, timeout=SECONDS)  # noqa: S310 (the registry holds https addresses)
    except urllib.error.HTTPError as error:
        raise SmilexError(f"the server answers {error.code} {error.reason} to {url}") from error
    except (OSError, http.client.HTTPException) as error:
        raise SmilexError(f"cannot reach {url}: {_reason(error)}") from error
    with response, _progress_bar() as bar:
        length = response.headers.get("Content-Length")
        expected = int(length) if length and length.isdigit() else None
        task = bar.add_task(url.rpartition("/")[2], total=expected)
        while block := _read(response, url):
            write(block)
            digest.update(block)
            received += len(block)
            bar.update(task, completed=received)
    if expected is not None and received != expected:
        raise SmilexError(f"{url} ended after {received} of {expected} bytes")
    return digest.hexdigest()


def _read(response: http.client.HTTPResponse, url: str) -> bytes:
    try:
        return response.read(1 << 16)
    except (OSError, http.client.HTTPException) as error:
        raise SmilexError(f"the connection to {url} broke: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", error)
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return " ".join(str(text).split())


def _progress_bar() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
