"""The encoding of text files: UTF-8, and the UTF-16 that spreadsheets write."""

import codecs
import io
from typing import BinaryIO

from smilex.errors import SmilexError

_NO_TEXT = {
    b"PK\x03\x04": "a zip archive or an Excel workbook: save it as CSV",
    b"\x1f\x8b": "something that gzip compressed: let its name end in .gz",
}


def text_encoding(start: bytes) -> str:
    r"""Return the encoding of a file from its first bytes: UTF-8, or UTF-16 where a byte-order mark says so.

    Parameters
    ----------
    start : bytes
        The first four bytes of the file or more; all of a shorter file.

    Raises
    ------
    SmilexError
        If the file is known to hold no text, or UTF-16 without the mark.

    Examples
    --------
    >>> text_encoding("smiles".encode()), text_encoding("smiles".encode("utf-16"))
    ('utf-8-sig', 'utf-16')
    """
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for magic, what in _NO_TEXT.items():
        if start.startswith(magic):
            raise SmilexError(f"its content is no text but {what}")
    if b"\0" in start[:2]:
        raise SmilexError("its content is not UTF-8, but perhaps UTF-16: save it as UTF-8")
    return "utf-8-sig"


def open_text(file: BinaryIO) -> io.TextIOWrapper:
    """Read a binary file as text with any line ends; a byte-order mark is no part of it.

    Bytes that are not UTF-8 become surrogates: they go through to the cleaning, which removes the row and says why.
    """
    buffered = io.BufferedReader(file)  # type: ignore[type-var] # also what cannot seek, such as stdin
    encoding = text_encoding(buffered.peek(4))
    errors = "replace" if encoding == "utf-16" else "surrogateescape"
    return io.TextIOWrapper(buffered, encoding=encoding, errors=errors, newline=None)
