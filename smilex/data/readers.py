"""Readers of molecule files: one row at a time, whatever the size of the file.

Each reader takes an open binary file and yields its rows in order. A row that the format itself cannot deliver (a
header, a damaged record) is yielded as `Unreadable`, so that it is counted and reported like every other removed row.
"""

import csv
import io
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from rdkit import Chem, rdBase

from smilex.data.columns import COLUMN_NAMES, check_separator, pick_column
from smilex.data.text import open_text
from smilex.errors import SmilexError


class Unreadable(NamedTuple):
    """A row of a file that holds no SMILES to look at, and why."""

    text: str
    reason: str
    detail: str


Row = str | Unreadable

HEADER = "header line"
"""The reason why a line that names the columns is no row of a molecule."""


def as_row(value: Any) -> Row:
    """Return a string as it is, and anything else (None, a number, a molecule) as `Unreadable`.

    Examples
    --------
    >>> as_row(None)
    Unreadable(text='', reason='not a string', detail='NoneType')
    """
    return value if isinstance(value, str) else Unreadable("", "not a string", type(value).__name__)


def is_header(row: Row) -> bool:
    """Whether this is a line of a .smi or .txt file that names its columns, which stands for no molecule."""
    return isinstance(row, Unreadable) and row.reason == HEADER


def refuse_table(source: object) -> None:
    """Raise an error for a table or a dict, which would be read as the list of its column names.

    Raises
    ------
    SmilexError
        `source` is a DataFrame, a dict or the like.
    """
    if isinstance(source, Mapping) or hasattr(source, "columns"):
        kind = type(source).__name__
        raise SmilexError(f"a {kind} is no list of molecules: give the part that holds SMILES, as in table['smiles']")


def read_lines(file: BinaryIO, smiles_column: str | None = None) -> Iterator[Row]:
    r"""Yield the first field of each line of a .smi or .txt file; the rest of a line is a name.

    Row i is line i of the file, counted from 0; blank lines and a header are rows too.

    Examples
    --------
    >>> list(read_lines(io.BytesIO(b"CCO ethanol\n\nO\twater\n")))
    ['CCO', '', 'O']
    """
    if smiles_column is not None:
        raise SmilexError("smiles_column: a .smi or .txt file has no named columns; leave it out or convert to .csv")
    may_be_header = True
    for line in open_text(file):
        first, *_ = line.split(maxsplit=1) or [""]
        if may_be_header and first.lower() in COLUMN_NAMES:
            yield Unreadable(line.strip(), HEADER, "names the columns")
        else:
            yield first
        may_be_header = may_be_header and not first


def read_table(file: BinaryIO, smiles_column: str | None = None, delimiter: str = ",") -> Iterator[Row]:
    r"""Yield the SMILES column of a .csv or .tsv file.

    Examples
    --------
    >>> list(read_table(io.BytesIO(b"name,SMILES\nethanol,CCO\nwater,O\n")))
    ['CCO', 'O']
    """
    lines = csv.reader(open_text(file), delimiter=delimiter)
    try:
        header = next(lines, None)
        if header is None:
            return
        check_separator(header, delimiter, smiles_column)
        column = header.index(pick_column(header, smiles_column))
        for fields in lines:
            yield fields[column] if column < len(fields) else ""
    except csv.Error as error:
        raise SmilexError(f"line {lines.line_num}: {error}; look for a quotation mark that is never closed") from error


def read_parquet(file: BinaryIO, smiles_column: str | None = None, start: int = 0) -> Iterator[Row]:
    """Yield the SMILES column of a .parquet file, batch by batch, from row `start` on.

    Row groups that end before that row are not read.
    """
    with _parquet(file) as table:
        column = pick_column(table.schema_arrow.names, smiles_column)
        groups = range(table.num_row_groups)
        for group in groups:
            rows = table.metadata.row_group(group).num_rows
            if start < rows:
                groups = groups[group:]
                break
            start -= rows
        else:
            return
        for batch in table.iter_batches(columns=[column], row_groups=list(groups)):
            yield from arrow_strings(batch.column(0).slice(start))
            start = max(start - len(batch), 0)


def count_parquet(file: BinaryIO) -> int:
    """Count the rows of a .parquet file, which its footer says."""
    with _parquet(file) as table:
        return table.metadata.num_rows


@contextmanager
def _parquet(file: BinaryIO) -> Iterator[pq.ParquetFile]:
    with tempfile.TemporaryFile() as plain:
        if not isinstance(
            file, io.BufferedReader
        ):  # gzip: Parquet jumps about in its file, which only a plain one does fast
            shutil.copyfileobj(file, plain)
            file = plain
        try:
            yield pq.ParquetFile(file)
        except pa.ArrowInvalid as error:
            raise SmilexError(f"no readable Parquet file: {str(error).splitlines()[0]}") from error


def arrow_strings(column: pa.Array) -> list[Row]:
    """Rows of an Arrow column; bytes that are not UTF-8 become surrogates instead of an error."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return [as_row(v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else v) for v in column.to_pylist()]


def read_sdf(file: BinaryIO, smiles_column: str | None = None) -> Iterator[Row]:
    """Yield the SMILES of each record of a .sdf file."""
    if smiles_column is not None:
        raise SmilexError("smiles_column: an .sdf file has structures, not columns; leave it out")
    with rdBase.BlockLogs():
        records = Chem.ForwardSDMolSupplier(file)
    while True:
        with rdBase.BlockLogs():
            try:
                mol = next(records)
            except StopIteration:
                return
            row = Unreadable("", "unreadable record", "RDKit cannot read it") if mol is None else Chem.MolToSmiles(mol)
        yield row


def _read_tsv(file: BinaryIO, smiles_column: str | None = None) -> Iterator[Row]:
    return read_table(file, smiles_column, delimiter="\t")


class Format(NamedTuple):
    """How to read one kind of file, and the bytes that stand once in each of its rows (for the progress bar)."""

    read: Callable[[BinaryIO, str | None], Iterator[Row]]
    row_mark: bytes | None


FORMATS = {
    ".smi": Format(read_lines, b"\n"),
    ".txt": Format(read_lines, b"\n"),
    ".csv": Format(read_table, b"\n"),
    ".tsv": Format(_read_tsv, b"\n"),
    ".parquet": Format(read_parquet, None),
    ".sdf": Format(read_sdf, b"$$$$"),
}
