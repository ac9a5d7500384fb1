"""Molecules with measured properties: tables, built-in sets and MoleculeNet files.

One table holds one kind of task. Rows keep their order and their SMILES as given, so that a row number means
the same molecule in the table, in a split and in the predictions.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_complex_dtype, is_numeric_dtype
from rdkit import RDConfig

from smilex.data import moleculenet_files
from smilex.data.columns import column_names, pick_column
from smilex.data.moleculenet import DATASETS
from smilex.data.tables import MISSING, read_table
from smilex.errors import SmilexError

Kind = Literal["regression", "classification"]

KINDS: tuple[str, ...] = get_args(Kind)

MOLECULENET: tuple[str, ...] = tuple(DATASETS)
"""Names of the MoleculeNet sets."""


@dataclass(frozen=True, eq=False)
class PropertyDataset:
    """Molecules and what was measured of them.

    Parameters
    ----------
    name : str
        Name of the set, or of the file without its suffix.
    smiles : list of str
        SMILES as given, in row order; an empty string where the table has none.
    targets : float64 array of shape (n, tasks)
        Labels in the units of the table, NaN where missing. Classes are 0 and 1.
    task_names : list of str
        Names of the target columns.
    kind : {"regression", "classification"}
        What all tasks are. Classification means binary.
    split_values : list, optional
        What the split column says of each row, None where missing; only where `load_properties` was given one.
    """

    name: str
    smiles: list[str]
    targets: NDArray[np.float64]
    task_names: list[str]
    kind: Kind
    split_values: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.smiles)

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of SMILES, task names, labels and split column; the same for one content under any name.

        Examples
        --------
        >>> a = load_properties(pd.DataFrame({"smiles": ["C", "CC"], "y": [0.5, 1.5]}))
        >>> b = load_properties(pd.DataFrame({"smiles": ["C", "CC"], "y": [0.5, 1.6]}))
        >>> len(a.fingerprint), a.fingerprint == b.fingerprint
        (64, False)
        """
        digest = hashlib.sha256(json.dumps([self.task_names, self.smiles]).encode())
        # NaN has many bit patterns; one of them stands for all.
        labels = np.where(np.isnan(self.targets), np.nan, self.targets)
        digest.update(labels.astype("<f8").tobytes())
        if self.split_values is not None:
            digest.update(json.dumps([str(value) for value in self.split_values]).encode())
        return digest.hexdigest()


def load_properties(
    dataset: pd.DataFrame | str | os.PathLike[str],
    *,
    smiles_column: str | None = None,
    target: str | Sequence[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    split_column: str | None = None,
) -> PropertyDataset:
    """Read molecules and their measured properties.

    Parameters
    ----------
    dataset : DataFrame, path or str
        A table; a .csv, .tsv or .parquet file (each also .gz); ``"nav17"``, the 1 017 Nav1.7 inhibitors (pIC50,
        ChEMBL document 2321810) inside RDKit's own package; or a MoleculeNet name such as ``"bbbp"`` (see
        `smilex.data.moleculenet`), read from ``NAME.csv.gz`` or the public file in `data_dir`, or downloaded.
    smiles_column : str, optional
        Column that holds the SMILES. Default: the one named "smiles" or the like (see
        `smilex.data.columns.pick_column`).
    target : str or sequence of str, optional
        Target column or columns. Default: the tasks of the MoleculeNet set; every column but the SMILES column and
        the split column of another table.
    data_dir : path, optional
        Folder of the MoleculeNet files. Default: the environment variable SMILEX_DATA, then the cache
        (``$SMILEX_CACHE/moleculenet`` or ``~/.cache/smilex/moleculenet``), where downloads end up.
    split_column : str, optional
        Column that says how to split: the part or the time of each row (see `smilex.data.splits.split`).

    Returns
    -------
    PropertyDataset
        All rows of the table, in order; SMILES are not parsed here.

    Raises
    ------
    SmilexError
        If the file is missing, empty or unreadable; a download fails; a column is unknown or is not numeric; labels
        are infinite, all missing or all the same; or the tasks mix classes with measured values.

    Examples
    --------
    >>> data = load_properties("nav17")
    >>> len(data), data.task_names, data.kind
    (1017, ['pIC50'], 'regression')
    >>> table = pd.DataFrame({"SMILES": ["C", "CC", "CCO"], "toxic": [0, 1, None]})
    >>> load_properties(table).kind
    'classification'
    """
    name, source = _resolve(dataset)
    if isinstance(source, Path):
        frame = read_table(source, smiles_column)
    elif isinstance(source, str):
        frame = _nav17() if source == "nav17" else moleculenet_files.read(source, data_dir)
    else:
        frame = source
    frame = frame.set_axis([str(column) for column in frame.columns], axis="columns")
    if frame.empty:
        raise SmilexError(f"{name!r} has no rows; give at least one molecule with a label")
    smiles_column = pick_column(frame.columns, smiles_column)
    if target is None and isinstance(source, str) and source in DATASETS:
        target = DATASETS[source].task_columns(column for column in frame.columns if column != split_column)
    task_names = _find_targets(frame, smiles_column, target, split_column)
    smiles = _strings(frame[smiles_column], smiles_column)
    targets = np.column_stack([_labels(frame[task], task) for task in task_names])
    _check_labels(targets, task_names)
    values = None if split_column is None else _present(frame[split_column])
    return PropertyDataset(name, smiles, targets, task_names, _kind(targets, task_names), values)


def _resolve(dataset: pd.DataFrame | str | os.PathLike[str]) -> tuple[str, pd.DataFrame | Path | str]:
    """Return the name of a data set, and its table, its file or, for a built-in one, its name again."""
    if isinstance(dataset, pd.DataFrame):
        return "table", dataset
    if not isinstance(dataset, str | os.PathLike):
        raise SmilexError(
            f"dataset is a {type(dataset).__name__}; give a DataFrame, a path or the name of a data set",
        )
    if isinstance(dataset, str) and dataset.lower() == "nav17":
        return "nav17", "nav17"
    if isinstance(dataset, str) and dataset.lower() in DATASETS:
        return dataset.lower(), dataset.lower()
    path = Path(dataset)
    try:
        found = path.is_file()
    except OSError as error:  # no permission, or a name longer than the system takes
        raise SmilexError(f"cannot read {str(dataset)[:80]!r}: {error.strerror}") from error
    if not found:
        names = ", ".join(["nav17", *MOLECULENET])
        raise SmilexError(f"{str(dataset)!r} is neither a file nor the name of a data set; the names are {names}")
    return path.name.removesuffix(".gz").rpartition(".")[0] or path.name, path


def _nav17() -> pd.DataFrame:
    folder = Path(RDConfig.RDContribDir) / "FreeWilson" / "data"
    try:
        molecules = pd.read_csv(folder / "CHEMBL2321810.smi", sep=" ", names=["smiles", "Name"])
        activities = pd.read_csv(folder / "CHEMBL2321810_act.csv")
    except OSError as error:
        raise SmilexError(f"this RDKit has no Nav1.7 data ({error}); install rdkit from PyPI or conda-forge") from error
    table = molecules.merge(activities, on="Name", how="left", validate="one_to_one")
    return table[["smiles", "Act"]].rename(columns={"Act": "pIC50"})


def _find_targets(
    frame: pd.DataFrame, smiles_column: str, target: str | Sequence[str] | None, split_column: str | None
) -> list[str]:
    columns = [column for column in frame.columns if column != smiles_column]
    if split_column is not None:
        if columns.count(split_column) != 1:
            raise SmilexError(f"no split column {split_column!r}; the columns are {column_names(columns)}")
        columns.remove(split_column)
    if not columns:
        raise SmilexError(f"no target column: {smiles_column!r} is the only column; add one with the labels")
    nameless = [column for column in columns if column.startswith("Unnamed: ")]
    if target is None and nameless:
        # pandas' name for a column without one: often a saved row index, which nobody wants to predict.
        raise SmilexError(f"column {nameless[0]!r} has no name in the file; choose the columns to learn with target=")
    if target is not None and not isinstance(target, str | Iterable):
        raise SmilexError(
            f"target is a column name or a list of them, not {target!r}; the columns are {column_names(columns)}"
        )
    wanted = columns if target is None else [target] if isinstance(target, str) else list(target)
    if not wanted:
        raise SmilexError(f"target is empty; the columns are {column_names(columns)}")
    for task in wanted:
        if task not in columns:
            raise SmilexError(f"no target column {task!r}; the columns are {column_names(columns)}")
        if columns.count(task) > 1 or wanted.count(task) > 1:
            raise SmilexError(f"target column {task!r} occurs twice; give each task a name of its own")
    return wanted


def _present(column: pd.Series) -> list[Any]:
    """Return the cells of a column, None where missing."""
    return column.astype(object).where(column.notna(), None).tolist()


def _strings(column: pd.Series, name: str) -> list[str]:
    """Return a column of SMILES as strings, empty where missing."""
    values = column.astype(object).where(column.notna(), "").tolist()
    for row, value in enumerate(values):
        if not isinstance(value, str):
            raise SmilexError(
                f"column {name!r} holds no SMILES (row {row}: {value!r}); name the right one by smiles_column="
            )
    return values


def _labels(column: pd.Series, name: str) -> NDArray[np.float64]:
    """Return a column of labels as float64, NaN where missing."""
    if is_complex_dtype(column.dtype):
        raise SmilexError(f"target column {name!r} holds complex numbers; give real numbers")
    if is_numeric_dtype(column.dtype) or is_bool_dtype(column.dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    cells = column.astype(object)
    absent = cells.isna() | cells.map(lambda cell: isinstance(cell, str) and cell.strip() in MISSING)
    readable = cells.map(lambda cell: isinstance(cell, str | Real | Decimal | np.bool_))
    numbers = pd.to_numeric(cells.where(~absent & readable, None), errors="coerce")
    values = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = np.flatnonzero(np.isnan(values) & ~absent.to_numpy(dtype=bool))
    if wrong.size:
        row = int(wrong[0])
        raise SmilexError(
            f"target column {name!r} is not numeric (row {row}: {cells.iloc[row]!r}): "
            "choose the numeric columns with target="
        )
    return values


def _check_labels(targets: NDArray[np.float64], task_names: Sequence[str]) -> None:
    """Refuse labels that nothing can be learned from."""
    if np.isnan(targets).all():
        raise SmilexError(f"all labels are missing in {column_names(task_names)}; fill in some")
    for task, values in zip(task_names, targets.T, strict=True):
        if np.isinf(values).any():
            row = int(np.flatnonzero(np.isinf(values))[0])
            raise SmilexError(f"target column {task!r} has an infinite label (row {row}); correct it or leave it empty")
        present = np.unique(values[~np.isnan(values)])
        if present.size == 0:
            raise SmilexError(f"all labels of {task!r} are missing; leave the task out with target=")
        if present.size == 1:
            what = "one class only" if present[0] in (0, 1) else "one value only"
            raise SmilexError(
                f"target column {task!r} has {what}: every label is {present[0]:g}; "
                "add molecules with other labels or choose another column with target="
            )


def _kind(targets: NDArray[np.float64], task_names: Sequence[str]) -> Kind:
    binary = (np.isnan(targets) | (targets == 0) | (targets == 1)).all(axis=0)
    if binary.all():
        return "classification"
    if not binary.any():
        return "regression"
    classes = [task for task, is_binary in zip(task_names, binary, strict=True) if is_binary]
    values = [task for task, is_binary in zip(task_names, binary, strict=True) if not is_binary]
    raise SmilexError(
        f"the targets mix classes ({column_names(classes)}) with measured values ({column_names(values)}): "
        "choose one kind with target="
    )
