"""Where unlabelled molecules come from: files, built-in corpora, lists, iterables and `datasets.Dataset`."""

import gzip
import hashlib
import importlib.util
import json
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import datasets
from rdkit import RDConfig

from smilex.data.cleaning import shorten
from smilex.data.columns import pick_column
from smilex.data.readers import (
    FORMATS,
    Row,
    Unreadable,
    arrow_strings,
    as_row,
    count_parquet,
    is_header,
    read_parquet,
    refuse_table,
)
from smilex.errors import SmilexError


@dataclass(frozen=True)
class Source:
    """Molecules that can be read more than once.

    Attributes
    ----------
    name : str
        What error messages call it.
    digest : str
        Hash of the content: equal content, equal digest.
    total : int or None
        About how many rows there are, for the progress bar; where there is `rows_from`, it is exact.
    rows : callable
        Returns an iterator over the rows, from the first.
    rows_from : callable, optional
        Returns an iterator over the rows from a given one on, without reading those before it, as Parquet files can.
    """

    name: str
    digest: str
    total: int | None
    rows: Callable[[], Iterator[Row]]
    rows_from: Callable[[int], Iterator[Row]] | None = None

    def molecules(self, start: int = 0) -> Iterator[Row]:
        """Rows that stand for molecules, valid or not, from number `start` on: all but a header line.

        Examples
        --------
        >>> list(open_source(["CCO", "O", "C"]).molecules(1))
        ['O', 'C']
        """
        if self.rows_from is not None:
            return self.rows_from(start)
        return islice((row for row in self.rows() if not is_header(row)), start, None)

    def count(self) -> int:
        """Count the molecules; a Parquet file says how many it has, others are read."""
        if self.rows_from is not None and self.total is not None:
            return self.total
        return sum(1 for _ in self.molecules())


def open_source(source: Any, smiles_column: str | None = None) -> Source:
    """Make a `Source` of whatever the user calls a corpus.

    Parameters
    ----------
    source : str, Path, datasets.Dataset or iterable of str
        A file, the name of a built-in corpus (``"nci5k"``, ``"moses"``), a dataset, or SMILES.
    smiles_column : str, optional
        The column of a .csv, .tsv or .parquet file or of a dataset; found by its name where there is one that fits.

    Raises
    ------
    SmilexError
        There is no such file or built-in corpus, its kind is unknown, it is damaged, or no column is known to hold
        SMILES.

    Examples
    --------
    >>> list(open_source(["CCO", "O"]).rows())
    ['CCO', 'O']
    """
    if isinstance(source, str) and source in BUILT_IN and not Path(source).exists():
        return _joined(source, [_file(path, None) for path in BUILT_IN[source]()])
    if isinstance(source, str | Path):
        return _file(Path(source).expanduser(), smiles_column)
    if isinstance(source, datasets.Dataset):
        return _dataset(source, smiles_column)
    refuse_table(source)
    if not isinstance(source, Iterable):
        raise SmilexError(f"a corpus is a path, a built-in name, a dataset or an iterable of SMILES, not {source!r}")
    if smiles_column is not None:
        raise SmilexError("smiles_column: an iterable of SMILES has no columns; leave it out")
    if isinstance(source, Sequence):
        return Source("the list", _digest(map(as_row, source)), len(source), lambda: map(as_row, source))
    return _spooled(source)


def _nci5k() -> list[Path]:
    return [Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi"]


def _moses() -> list[Path]:
    spec = importlib.util.find_spec("moses")  # finds the package without importing its old dependencies
    folders = [Path(p) / "dataset" / "data" for p in (spec and spec.submodule_search_locations) or []]
    for folder in folders:
        paths = [folder / f"{part}.csv.gz" for part in ("train", "test", "test_scaffolds")]
        if all(path.is_file() for path in paths):
            return paths
    raise SmilexError(
        "the built-in corpus 'moses' reads the files of the package molsets: pip install --no-deps molsets==0.3.1"
    )


BUILT_IN: dict[str, Callable[[], list[Path]]] = {"moses": _moses, "nci5k": _nci5k}
"""Built-in corpora: name → function that finds its files."""


def _file(path: Path, smiles_column: str | None) -> Source:
    kind = _kind(path)
    form = FORMATS[kind]
    digest = hashlib.blake2b(f"{kind} {smiles_column}".encode(), digest_size=16)
    total = 0
    for block in _blocks(path):
        digest.update(block)
        total += block.count(form.row_mark) if form.row_mark else 0

    def rows(start: int = 0) -> Iterator[Row]:
        with _reading(path) as file:
            yield from read_parquet(file, smiles_column, start) if start else form.read(file, smiles_column)

    if form.read is not read_parquet:
        return Source(str(path), digest.hexdigest(), total or None, rows)
    with _reading(path) as file:
        return Source(str(path), digest.hexdigest(), count_parquet(file), rows, rows)


@contextmanager
def _reading(path: Path) -> Iterator[BinaryIO]:
    """Open a file, and say in errors which one it was."""
    with _open(path) as file:
        try:
            yield file
        except SmilexError as error:
            raise SmilexError(f"{path}: {error}") from error


def _kind(path: Path) -> str:
    kinds = ", ".join(FORMATS)
    kind = (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # not there, or a name that no file can have
        if kind in FORMATS:
            raise SmilexError(f"there is no file {path}") from error
        known = f"built-in corpora: {', '.join(sorted(BUILT_IN))}; files: {kinds}, each also .gz"
        raise SmilexError(f"{shorten(str(path))} is neither a file nor a built-in corpus; {known}") from error
    if stat.S_ISDIR(mode):
        raise SmilexError(f"{path} is a directory: give a file ({kinds}, each also .gz)")
    if kind not in FORMATS:
        raise SmilexError(f"{path}: unknown kind of file {path.suffix!r}; known are {kinds}, each also .gz")
    return kind


def _open(path: Path) -> BinaryIO:
    try:
        return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")  # type: ignore[return-value]
    except OSError as error:
        raise SmilexError(f"cannot read {path}: {error.strerror}") from error


def _blocks(path: Path) -> Iterator[bytes]:
    with _open(path) as file:
        try:
            while block := file.read(1 << 20):
                yield block
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise SmilexError(f"{path} is damaged or no gzip file: {error}; copy or download it again") from error


def _joined(name: str, parts: Sequence[Source]) -> Source:
    if len(parts) == 1:
        return parts[0]
    digest = hashlib.blake2b(" ".join(part.digest for part in parts).encode(), digest_size=16).hexdigest()
    return Source(name, digest, sum(part.total or 0 for part in parts), lambda: chain(*(part.rows() for part in parts)))


def _dataset(dataset: datasets.Dataset, smiles_column: str | None) -> Source:
    column = pick_column(dataset.column_names, smiles_column)

    def rows() -> Iterator[Row]:
        for table in dataset.select_columns(column).with_format("arrow").iter(1000):
            for piece in table.column(0).chunks:
                yield from arrow_strings(piece)

    return Source("the dataset", _digest(rows()), len(dataset), rows)


def _spooled(items: Iterable[Any]) -> Source:
    # A generator can be read once only, but its hash is needed before its rows: they wait in a file that has no name.
    spool = tempfile.TemporaryFile("w+", encoding="ascii")  # noqa: SIM115 (lives as long as the source)
    total = 0

    def spooling() -> Iterator[Row]:
        nonlocal total
        for row in map(as_row, items):
            spool.write(json.dumps(row) + "\n")
            total += 1
            yield row

    digest = _digest(spooling())

    def rows() -> Iterator[Row]:
        spool.seek(0)
        for line in spool:
            row = json.loads(line)
            yield row if isinstance(row, str) else Unreadable(*row)

    return Source("the iterable", digest, total, rows)


def _digest(rows: Iterable[Row]) -> str:
    digest = hashlib.blake2b(b"rows", digest_size=16)
    for row in rows:
        digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()
