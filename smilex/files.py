"""Molecules from a file or from stdin, row by row, and results to a file, whole or not at all."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from smilex.data.readers import Row, is_header, read_lines
from smilex.data.sources import open_source
from smilex.errors import SmilexError
from smilex.writing import whole_file, write_text

STDIN = "-"

TABLES = (".csv", ".parquet")
"""Kinds of file for a table."""

VECTORS = (".npy", ".npz", ".csv", ".parquet")
"""Kinds of file for vectors."""


def read_molecules(source: str, smiles_column: str | None = None) -> list[str]:
    r"""Read the molecules of a file, one for each of its rows.

    A blank line is a row without a molecule, so that row numbers stay those of the file. The header of a table is no
    row, nor is a first line of a .smi or .txt file that only names its columns.

    Parameters
    ----------
    source : str
        A file (.smi, .txt, .csv, .tsv, .parquet, .sdf, each also .gz), or "-" for stdin with one SMILES a line.
    smiles_column : str, optional
        The column with the SMILES, where it is not called `smiles` or the like.

    Returns
    -------
    list of str
        What stands in each row, valid or not; bytes that are not UTF-8 as backslash escapes, which no SMILES has.

    Raises
    ------
    SmilexError
        If there is no such file, it cannot be read, or it has no row.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "alcohols.smi"
    ...     _ = path.write_text("CO methanol\n\nCCO ethanol\n")
    ...     read_molecules(str(path))
    ['CO', '', 'CCO']
    """
    rows = read_lines(sys.stdin.buffer, smiles_column) if source == STDIN else open_source(source, smiles_column).rows()
    molecules = [row_text(row) for row in rows if not is_header(row)]
    if not molecules:
        raise empty_input("stdin" if source == STDIN else source)
    return molecules


def empty_input(name: str) -> SmilexError:
    """Return the error for an input without a row."""
    return SmilexError(f"{name} is empty: give at least one molecule")


def row_text(row: Row) -> str:
    r"""Return what stands in a row; bytes that are not UTF-8 become backslash escapes, which no SMILES has.

    Examples
    --------
    >>> row_text("C\udcff")
    'C\\xff'
    """
    text = row if isinstance(row, str) else row.text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def names_directory(output: str) -> bool:
    """Whether this output is to be a directory: it ends like one, has no suffix, or is one without that of a file.

    Examples
    --------
    >>> names_directory("out.v2/"), names_directory("out"), names_directory("out.npy"), names_directory("out.txt")
    (True, True, False, False)
    """
    suffix = Path(output).suffix.lower()
    return output.endswith(("/", os.sep)) or not suffix or (suffix not in VECTORS and Path(output).is_dir())


def check_output(path: Path, kinds: Sequence[str], source: str = STDIN) -> None:
    """Refuse a file that could not be written later, before any work is done.

    Raises
    ------
    SmilexError
        If the suffix is none of `kinds`, the folder is missing or not writable, or the file is the `source` itself.

    Examples
    --------
    >>> check_output(Path("vectors.txt"), VECTORS)
    Traceback (most recent call last):
    smilex.errors.SmilexError: cannot write vectors.txt: its suffix must be one of .npy, .npz, .csv, .parquet
    """
    if path.suffix.lower() not in kinds:
        raise SmilexError(f"cannot write {path}: its suffix must be one of {', '.join(kinds)}")
    if path.is_dir():
        raise SmilexError(f"cannot write {path}: it is a directory")
    if not path.parent.is_dir():
        raise SmilexError(f"cannot write {path}: there is no directory {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise SmilexError(f"cannot write {path}: no permission in {path.parent}; name another place")
    if source != STDIN and path.exists() and Path(source).exists() and path.samefile(source):
        raise SmilexError(f"cannot write {path}: it is the input; name another file")


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table as .csv or .parquet, by the suffix of the path; an existing file is replaced."""
    if path.suffix.lower() == ".csv":
        write_text(path, csv_text(table))
    else:
        with whole_file(path) as partial:
            table.to_parquet(partial, index=False)


def csv_text(table: pd.DataFrame) -> str:
    r"""Return a table as CSV.

    Examples
    --------
    >>> csv_text(pd.DataFrame({"smiles": ["CCO"], "logS": [0.5]}))
    'smiles,logS\nCCO,0.5\n'
    """
    return table.to_csv(index=False, lineterminator="\n")


def write_vectors(smiles: Sequence[str], vectors: NDArray[np.float32], path: Path) -> None:
    """Write vectors of molecules, (n, d), one row per molecule.

    Parameters
    ----------
    smiles : sequence of str
        What stood in each row of the input.
    vectors : float32 array, shape (n, d)
        NaN rows where a molecule is invalid.
    path : Path
        By its suffix: .npy holds the array; .npz the arrays `smiles` and `vectors`; .csv and .parquet the columns
        `smiles`, `v0` … `v{d-1}`.
    """
    suffix = path.suffix.lower()
    if suffix == ".npy":
        with whole_file(path) as partial, partial.open("wb") as file:
            np.save(file, vectors, allow_pickle=False)
    elif suffix == ".npz":
        with whole_file(path) as partial, partial.open("wb") as file:
            np.savez(file, smiles=np.array(smiles, dtype=np.str_), vectors=vectors)
    else:
        table = pd.DataFrame(vectors, columns=[f"v{index}" for index in range(vectors.shape[1])])
        table.insert(0, "smiles", list(smiles))
        write_table(table, path)
