"""Reading tables from files, with the errors of a person who made a mistake in mind."""

import gzip
import io
import warnings
import zlib
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from pyarrow import ArrowException

from smilex.errors import SmilexError

# What a spreadsheet or a script writes for "not measured".
MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None", "<NA>")


def column_names(names: Iterable[str], limit: int = 12) -> str:
    """Return names as they are listed in a message, the first ones of many.

    Examples
    --------
    >>> column_names(["a", "b"])
    "'a', 'b'"
    >>> column_names("abcd", limit=2)
    "'a', 'b' and 2 more"
    """
    shown = list(names)
    text = ", ".join(map(repr, shown[:limit]))
    return text if len(shown) <= limit else f"{text} and {len(shown) - limit} more"


def read_table(path: str | Path, text_column: str | None = None) -> pd.DataFrame:
    r"""Read a .csv, .tsv or .parquet file, each also with .gz.

    Parameters
    ----------
    path : path
        The file. Text is UTF-8.
    text_column : str, optional
        Column, in upper or lower case, whose cells stay the strings they are: "NA" and "" are not missing there.

    Returns
    -------
    DataFrame
        The rows of the file in order.

    Raises
    ------
    SmilexError
        If the file is missing, empty, damaged, or of another format.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.csv"
    ...     _ = path.write_text("smiles,y\nCC,1.5\n")
    ...     read_table(path).to_dict("list")
    {'smiles': ['CC'], 'y': [1.5]}
    """
    path = Path(path)
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix not in {".csv", ".tsv", ".parquet"}:
        raise SmilexError(f"cannot read {str(path)!r}: save the table as .csv, .tsv or .parquet (or with .gz)")
    try:
        content = path.read_bytes()
        if path.name.lower().endswith(".gz") and content:
            content = gzip.decompress(content)
    except FileNotFoundError as error:
        raise SmilexError(f"no file {str(path)!r}; check the path") from error
    except (OSError, EOFError, zlib.error) as error:
        raise SmilexError(f"cannot read {str(path)!r}: {error}") from error
    if not content.strip():
        raise SmilexError(f"{str(path)!r} is empty; give a table with a smiles column")
    try:
        if suffix == ".parquet":
            return pd.read_parquet(io.BytesIO(content))
        return _parse_text(content, "\t" if suffix == ".tsv" else ",", text_column)
    except pd.errors.ParserWarning as error:
        raise SmilexError(f"{str(path)!r} has rows with more cells than its header; give each column a name") from error
    except (UnicodeDecodeError, pd.errors.ParserError, ArrowException, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise SmilexError(f"{str(path)!r} is no proper {suffix[1:]} table: {reason}") from error


def _parse_text(content: bytes, separator: str, text_column: str | None) -> pd.DataFrame:
    wanted = (text_column or "").lower()
    header = pd.read_csv(io.BytesIO(content), sep=separator, nrows=0, encoding="utf-8-sig", index_col=False)
    missing = {column: list(MISSING) for column in header.columns if column.lower() != wanted}
    texts = {column: "str" for column in header.columns if column.lower() == wanted}
    with warnings.catch_warnings():
        # Rows longer than the header would shift or lose cells.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return pd.read_csv(
            io.BytesIO(content),
            sep=separator,
            encoding="utf-8-sig",
            index_col=False,
            dtype=texts,
            keep_default_na=False,
            na_values=missing,
            low_memory=False,
            skip_blank_lines=False,  # a blank line is a row without a molecule, as everywhere else
        )
