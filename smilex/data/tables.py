"""Reading tables from files, with the errors of a person who made a mistake in mind."""

import gzip
import io
import warnings
import zlib
from pathlib import Path
from typing import Any

import pandas as pd
from pyarrow import ArrowException

from smilex.data.columns import check_separator, may_hold_smiles
from smilex.data.text import text_encoding
from smilex.errors import SmilexError

# What a spreadsheet or a script writes for "not measured".
MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None", "<NA>")


def read_table(path: str | Path, smiles_column: str | None = None) -> pd.DataFrame:
    r"""Read a .csv, .tsv or .parquet file, each also with .gz.

    Parameters
    ----------
    path : path
        The file. Text is UTF-8, or UTF-16 with a byte-order mark.
    smiles_column : str, optional
        Column whose cells stay the strings they are: "NA" and "" are not missing there. Default: those whose names
        are known to hold SMILES.

    Returns
    -------
    DataFrame
        The rows of the file in order. Columns have the names of the file, also where two have the same.

    Raises
    ------
    SmilexError
        If the file is missing, empty, damaged, or of another format, or its cells are separated by something else
        than its suffix says.

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
        return _parse_text(content, "\t" if suffix == ".tsv" else ",", smiles_column)
    except pd.errors.ParserWarning as error:
        raise SmilexError(f"{str(path)!r} has rows with more cells than its header; give each column a name") from error
    except SmilexError as error:
        raise SmilexError(f"{str(path)!r}: {error}") from error
    except (UnicodeDecodeError, pd.errors.ParserError, ArrowException, OSError) as error:
        raise SmilexError(f"{str(path)!r} is no proper {suffix[1:]} table: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    reason = str(error).strip().splitlines()[0]
    way_out = "; save it as UTF-8 (in Excel: CSV UTF-8)" if isinstance(error, UnicodeDecodeError) else ""
    return reason + way_out


def _parse_text(content: bytes, separator: str, smiles_column: str | None) -> pd.DataFrame:
    settings: dict[str, Any] = {
        "sep": separator,
        "encoding": text_encoding(content),
        "keep_default_na": False,
        "skip_blank_lines": False,  # a blank line is a row without a molecule, as everywhere else
    }
    header = pd.read_csv(io.BytesIO(content), header=None, nrows=1, dtype="str", **settings).iloc[0]
    names = [name or f"Unnamed: {place}" for place, name in enumerate(header)]
    check_separator(names, separator, smiles_column)
    # pandas renames the second of two columns of one name in silence: it reads them by number.
    texts = {str(place): may_hold_smiles(name, smiles_column) for place, name in enumerate(names)}
    with warnings.catch_warnings():
        # Rows longer than the header would shift or lose cells.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        table = pd.read_csv(
            io.BytesIO(content),
            header=0,
            names=list(texts),
            index_col=False,
            dtype={place: "str" for place, is_text in texts.items() if is_text},
            na_values={place: list(MISSING) for place, is_text in texts.items() if not is_text},
            low_memory=False,
            **settings,
        )
    return table.set_axis(names, axis="columns")
