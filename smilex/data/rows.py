"""The molecules that a user hands in, as token ids: one row per molecule, whether it is valid or not."""

import inspect
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from rdkit import Chem

from smilex.data.cleaning import RemovalError, check_length, parse_text, shorten
from smilex.data.readers import refuse_table
from smilex.errors import SmilexError

if TYPE_CHECKING:
    from smilex.tokenization import SmilesTokenizer

SHOWN = 5
"""How many invalid rows a report names."""

_CALLERS = ("smilex", "sklearn", "deepchem", "joblib", "contextlib")
"""Packages between smilex and the code of its user."""


class InvalidMoleculeWarning(UserWarning):
    """Some rows hold no molecule that can be used; their results are NaN."""


class InvalidRow(NamedTuple):
    """A row without a usable molecule: its position in the input (from 0), what stood there, and what is wrong."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which a row does not need
    smiles: str
    reason: str

    def as_error(self) -> SmilexError:
        """Return the error that this row is where invalid molecules are not to be reported only."""
        return SmilexError(f"row {self.index}: {shorten(self.smiles)} cannot be used: {self.reason}")


@dataclass(frozen=True)
class EncodedRows:
    """Molecules as token ids.

    Attributes
    ----------
    input_ids : list of (list of int, or None)
        For each row of the input its token ids with [CLS] and [SEP]; None where the row is invalid.
    invalid : list of InvalidRow
        The rows that are None, in order.
    """

    input_ids: list[list[int] | None]
    invalid: list[InvalidRow]


def encode_rows(
    smiles: Iterable[str | Chem.Mol],
    tokenizer: "SmilesTokenizer",
    *,
    max_length: int,
    canonical: bool = True,
    errors: Literal["report", "raise"] = "report",
) -> EncodedRows:
    """Turn molecules into token ids, row by row.

    Parameters
    ----------
    smiles : iterable of str or rdkit.Chem.Mol
        The molecules.
    tokenizer : SmilesTokenizer
        Turns SMILES into ids.
    max_length : int
        Most tokens that the model takes, with [CLS] and [SEP]; longer molecules are invalid.
    canonical : bool
        Encode the canonical SMILES, as in pretraining; otherwise the string as it is written.
    errors : {"report", "raise"}
        Whether an invalid molecule becomes a line of the report or an error.

    Raises
    ------
    SmilexError
        `smiles` is a single string or molecule, or a table; or, with ``errors="raise"``, a row is invalid.

    Examples
    --------
    >>> from smilex import SmilesTokenizer
    >>> rows = encode_rows(["OCC", "C1CC"], SmilesTokenizer(), max_length=512)
    >>> [ids and len(ids) for ids in rows.input_ids]
    [5, None]
    >>> rows.invalid[0].index, rows.invalid[0].smiles
    (1, 'C1CC')
    """
    if isinstance(smiles, str | Chem.Mol) or not isinstance(smiles, Iterable):
        raise SmilexError(f"{smiles!r} in place of many molecules: pass a list, for example ['CCO']")
    refuse_table(smiles)
    check_errors(errors)
    encoded: list[list[int] | None] = []
    invalid: list[InvalidRow] = []
    for index, item in enumerate(smiles):
        text = Chem.MolToSmiles(item) if isinstance(item, Chem.Mol) else item
        try:
            encoded.append(_encode(text, tokenizer, max_length, canonical=canonical))
        except RemovalError as error:
            row = InvalidRow(index, str(text), str(error))
            if errors == "raise":
                raise row.as_error() from error
            encoded.append(None)
            invalid.append(row)
    return EncodedRows(encoded, invalid)


def check_errors(errors: object) -> None:
    """Refuse whatever is no way to treat invalid molecules.

    Raises
    ------
    SmilexError
        If `errors` is neither "report" nor "raise".
    """
    if errors not in ("report", "raise"):
        raise SmilexError(f"errors is 'report' or 'raise', not {errors!r}")


def describe_invalid(invalid: Sequence[InvalidRow], total: int, count: int | None = None) -> str:
    """Return a short report of invalid rows: the first five, and how many more there are.

    Parameters
    ----------
    invalid : sequence of InvalidRow
        The invalid rows, or the first of `count` of them.
    total : int
        Rows of the input, valid or not.
    count : int, optional
        How many are invalid, where `invalid` does not hold them all.

    Examples
    --------
    >>> print(describe_invalid([InvalidRow(1, "C1CC", "invalid SMILES: unclosed ring")], total=2))
    1 of 2 rows holds no molecule that can be used:
      row 1: 'C1CC' (invalid SMILES: unclosed ring)
    """
    count = len(invalid) if count is None else count
    verb = "holds" if count == 1 else "hold"
    lines = [f"{count} of {total} rows {verb} no molecule that can be used:"]
    lines += [f"  row {row.index}: {shorten(row.smiles)} ({row.reason})" for row in invalid[:SHOWN]]
    if count > SHOWN:
        lines.append(f"  and {count - SHOWN} more")
    return "\n".join(lines)


def warn_invalid(invalid: Sequence[InvalidRow], total: int, count: int | None = None) -> None:
    """Warn of invalid rows, if there are any, at the line of the user that led here; arguments as `describe_invalid`.

    That is the innermost one outside smilex and the libraries that call smilex in turn: scikit-learn and DeepChem wrap
    its methods in more calls than a fixed `stacklevel` could count.
    """
    if not invalid:
        return
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _CALLERS:
        level, frame = level + 1, frame.f_back
    warnings.warn(describe_invalid(invalid, total, count), InvalidMoleculeWarning, stacklevel=level)


def _encode(text: object, tokenizer: "SmilesTokenizer", max_length: int, *, canonical: bool) -> list[int]:
    if not isinstance(text, str):
        raise RemovalError(
            "not a molecule", f"{type(text).__name__} where a SMILES string or an RDKit molecule should be"
        )
    mol = parse_text(text)
    ids: list[int] = tokenizer(Chem.MolToSmiles(mol) if canonical else text.strip(), verbose=False)["input_ids"]
    check_length(ids, max_length)
    if tokenizer.unk_token_id in ids:
        raise RemovalError("unknown token", "it has notation that only RDKit reads; its canonical SMILES will do")
    return ids
