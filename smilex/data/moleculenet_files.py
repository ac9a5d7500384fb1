"""Where the tables of the MoleculeNet sets are found on this computer, or else downloaded to."""

import os
from functools import partial
from pathlib import Path

import pandas as pd

from smilex.data.columns import column_names
from smilex.data.downloads import check_unchanged, download
from smilex.data.moleculenet import DATASETS, MoleculeNetSet
from smilex.data.tables import read_table
from smilex.errors import SmilexError


def read(name: str, data_dir: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Read the table of a set, downloading it where it is nowhere on this computer.

    It is looked for in `data_dir` or else in the folder that the environment variable SMILEX_DATA names, as
    ``NAME.csv.gz``, ``NAME.csv`` or under its public name; then in the cache, ``$SMILEX_CACHE/moleculenet`` or
    ``~/.cache/smilex/moleculenet``, where a download ends up.

    Parameters
    ----------
    name : str
        A key of `DATASETS`.
    data_dir : path, optional
        Folder of the files. Default: the environment variable SMILEX_DATA, where set.

    Returns
    -------
    DataFrame
        All rows in the order of the file, with its columns; the SMILES and the tasks have the names that the
        registry gives them.

    Raises
    ------
    SmilexError
        If the folder is missing; the file lacks a column or is damaged; or it is nowhere and cannot be downloaded.
    """
    record = DATASETS[name]
    path = _find(record, data_dir)
    check_unchanged(path)
    return _table(record, path)


def _find(record: MoleculeNetSet, data_dir: str | os.PathLike[str] | None) -> Path:
    cache = Path(os.environ.get("SMILEX_CACHE") or "~/.cache/smilex").expanduser() / "moleculenet"
    folders = [cache]
    given = data_dir or os.environ.get("SMILEX_DATA")
    if given:
        folder = Path(given).expanduser()
        if not folder.is_dir():
            raise SmilexError(f"there is no folder {str(given)!r}: set data_dir= or SMILEX_DATA to one that exists")
        folders.insert(0, folder)
    for path in (folder / name for folder in folders for name in record.file_names):
        if path.is_file():
            return path
    path = cache / record.file
    try:
        download(record.url, path, partial(_check, record), record.sha256)
    except SmilexError as error:
        raise SmilexError(
            f"MoleculeNet set {record.name!r} is not in {' or '.join(map(str, folders))}, and its download failed: "
            f"{error}. Put {' or '.join(record.file_names)} (columns {record.contents}) into {folders[0]}, or the "
            f"public file as it is: {record.url}"
        ) from error
    return path


def _check(record: MoleculeNetSet, path: Path) -> None:
    """Refuse a download that is not the set, or not all of it."""
    table = _table(record, path)
    tasks = len(record.task_columns(table.columns))
    if tasks != record.n_tasks:
        raise SmilexError(f"{record.url} has {tasks} task columns, not {record.n_tasks}")
    if record.rows is not None and len(table) < record.rows:
        raise SmilexError(f"{record.url} gave {len(table)} of {record.rows} rows")


def _table(record: MoleculeNetSet, path: Path) -> pd.DataFrame:
    """Read a file and refuse what is not the set."""
    table = read_table(path)
    # The public qm8 has columns of one name twice; the first ones count.
    table = table.loc[:, ~table.columns.duplicated()].rename(columns=dict(record.renamed))
    lacking = [column for column in ("smiles", *record.tasks) if column not in table.columns]
    if lacking:
        raise SmilexError(f"{path} is not the set {record.name!r}: it has no column {column_names(lacking)}")
    return table
