"""Cleaning of unlabelled molecules, and the report of what was removed and why.

A worker process cleans a chunk of rows at a time. This module imports neither torch nor transformers, so that workers
stay small.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from rdkit import Chem
from tokenizers import Tokenizer

from smilex import chem
from smilex.data.readers import Row
from smilex.errors import InvalidSmilesError

EXAMPLES = 5
"""How many examples of each reason a report keeps."""

SCHEMA = pa.schema([("smiles", pa.string()), ("input_ids", pa.list_(pa.uint16())), ("length", pa.int32())])


class Removed(NamedTuple):
    """A row that was removed: its position in the source (from 0), the string, and details of the reason."""

    row: int
    smiles: str
    detail: str


@dataclass
class CleaningReport:
    """What became of the rows of a corpus.

    Attributes
    ----------
    read, kept : int
        Rows in the source and molecules in the corpus; read = kept + everything removed.
    removed : dict of str to int
        How many rows were removed for each reason.
    examples : dict of str to list of Removed
        The first five rows removed for each reason.

    Examples
    --------
    >>> report = CleaningReport(read=2, kept=1)
    >>> report.remove("duplicate", [Removed(1, "OCC", "same molecule as an earlier row: CCO")])
    >>> print(report)
    2 rows read, 1 molecule kept, 1 removed
      duplicate: 1
        row 1: 'OCC' (same molecule as an earlier row: CCO)
    """

    read: int = 0
    kept: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[Removed]] = field(default_factory=dict)

    def remove(self, reason: str, rows: Sequence[Removed], count: int | None = None) -> None:
        """Count rows removed for a reason; `count` where there were more than are listed."""
        self.removed[reason] = self.removed.get(reason, 0) + (len(rows) if count is None else count)
        shown = self.examples.setdefault(reason, [])
        shown.extend(rows[: EXAMPLES - len(shown)])

    def add(self, other: "CleaningReport") -> None:
        """Add the report of the rows that follow."""
        self.read += other.read
        self.kept += other.kept
        for reason, count in other.removed.items():
            self.remove(reason, other.examples[reason], count)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain lists and dicts, for JSON."""
        return asdict(self) | {
            "examples": {reason: [list(row) for row in rows] for reason, rows in self.examples.items()}
        }

    @classmethod
    def from_dict(cls, report: dict[str, Any]) -> "CleaningReport":
        """Return the report that `to_dict` wrote."""
        examples = {reason: [Removed(*row) for row in rows] for reason, rows in report["examples"].items()}
        return cls(report["read"], report["kept"], dict(report["removed"]), examples)

    def __str__(self) -> str:
        molecules = "molecule" if self.kept == 1 else "molecules"
        lines = [f"{self.read} rows read, {self.kept} {molecules} kept, {self.read - self.kept} removed"]
        for reason, count in sorted(self.removed.items(), key=lambda item: -item[1]):
            lines.append(f"  {reason}: {count}")
            lines.extend(
                f"    row {row}: {shorten(smiles)} ({detail})" for row, smiles, detail in self.examples[reason]
            )
        return "\n".join(lines)


class Settings(NamedTuple):
    """How to clean: what of the cache key does not come from the content."""

    neutralize: bool
    max_length: int
    tokenizer: str  # tokenizer.json as a string


class Cleaned(NamedTuple):
    """A cleaned chunk.

    Attributes
    ----------
    batch : pyarrow.RecordBatch
        Its molecules, in order, with the columns of `SCHEMA`.
    hashes : numpy.ndarray
        64-bit hash of each canonical SMILES, by which duplicates are found; uint64.
    originals : list of Removed
        What to report of each molecule if it turns out to be a duplicate.
    report : CleaningReport
        The rows removed so far; `kept` still counts duplicates.
    """

    batch: pa.RecordBatch
    hashes: np.ndarray
    originals: list[Removed]
    report: CleaningReport


class RemovalError(Exception):
    """Says why one row is removed."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def clean_chunk(start: int, rows: Sequence[Row], settings: Settings) -> Cleaned:
    """Clean consecutive rows of a source, the first of which is row `start`."""
    tokenizer = _tokenizer(settings.tokenizer)
    report = CleaningReport(read=len(rows))
    smiles, input_ids, originals = [], [], []
    for index, row in enumerate(rows, start):
        try:
            canonical = clean_row(row, neutralize=settings.neutralize)
            ids = tokenizer.encode(canonical).ids  # one by one: a batch would start threads, one set in each worker
            check_length(ids, settings.max_length)
        except RemovalError as removal:
            report.remove(removal.reason, [Removed(index, _printable(row), removal.detail)])
        else:
            smiles.append(canonical)
            input_ids.append(ids)
            originals.append(Removed(index, str(row), f"same molecule as an earlier row: {canonical}"))
    report.kept = len(smiles)
    lengths = [len(ids) for ids in input_ids]
    columns = [pa.array(c, type=t) for c, t in zip((smiles, input_ids, lengths), SCHEMA.types, strict=True)]
    hashes = np.array([_hash(s) for s in smiles], dtype=np.uint64)
    return Cleaned(pa.record_batch(columns, schema=SCHEMA), hashes, originals, report)


def clean_row(row: Row, *, neutralize: bool = False) -> str:
    """Return the canonical SMILES of a row's largest fragment.

    Raises
    ------
    RemovalError
        The row holds no molecule that RDKit accepts.

    Examples
    --------
    >>> clean_row("OCC.[Na+].[Cl-]")
    'CCO'
    """
    if not isinstance(row, str):
        raise RemovalError(row.reason, row.detail)
    mol = parse_text(row)
    if neutralize or "." in row:  # otherwise there is one fragment, and choosing it takes a quarter of the time
        mol = chem.standardize(mol, neutralize=neutralize)
    return Chem.MolToSmiles(mol)


def parse_text(text: str) -> Chem.Mol:
    """Parse a string from a file or a user, and sort what is wrong with it by kind.

    Raises
    ------
    RemovalError
        The string is blank, is too long for RDKit, stands for bytes that are not UTF-8, or is no valid SMILES.

    Examples
    --------
    >>> parse_text("CCO").GetNumAtoms()
    3
    >>> parse_text("CC" * 10_000)
    Traceback (most recent call last):
    smilex.data.cleaning.RemovalError: too long: 20000 characters, the limit is 5000
    """
    text = text.strip()
    if not text:
        raise RemovalError("empty", "there is no SMILES")
    if len(text) > chem.MAX_SMILES_LENGTH:
        raise RemovalError("too long", f"{len(text)} characters, the limit is {chem.MAX_SMILES_LENGTH}")
    try:
        text.encode()
        return chem.parse(text)
    except UnicodeEncodeError as error:
        detail = f"byte 0x{ord(text[error.start]) & 0xFF:02x} at position {error.start + 1}"
        raise RemovalError("not UTF-8", detail) from error
    except InvalidSmilesError as error:
        raise RemovalError("invalid SMILES", error.reason) from error


def check_length(ids: Sequence[int], limit: int) -> None:
    """Refuse a molecule of more tokens than a model takes, [CLS] and [SEP] included.

    Raises
    ------
    RemovalError
        There are more than `limit`.

    Examples
    --------
    >>> check_length(range(600), 512)
    Traceback (most recent call last):
    smilex.data.cleaning.RemovalError: too long: 600 tokens with [CLS] and [SEP], the limit is 512
    """
    if len(ids) > limit:
        raise RemovalError("too long", f"{len(ids)} tokens with [CLS] and [SEP], the limit is {limit}")


def shorten(text: str, limit: int = 60) -> str:
    """Quote a string for one line of a report, its middle left out where it is long."""
    if len(text) > limit:
        text = f"{text[: limit * 2 // 3]}…{text[-limit // 3 :]} [{len(text)} characters]"
    return repr(text)


def _printable(row: Row) -> str:
    text = row if isinstance(row, str) else row.text
    return text.encode("utf-8", "backslashreplace").decode()


def _hash(smiles: str) -> int:
    return int.from_bytes(hashlib.blake2b(smiles.encode(), digest_size=8).digest(), "little")


@lru_cache(maxsize=1)
def _tokenizer(serialized: str) -> Tokenizer:
    return Tokenizer.from_str(serialized)
