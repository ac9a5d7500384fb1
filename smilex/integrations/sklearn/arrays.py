"""X and y as scikit-learn hands them over: arrays, lists, Series and tables."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rdkit import Chem
from sklearn.utils import Tags

from smilex.errors import SmilexError


def read_molecules(X: Any) -> list[Any]:
    """Return the molecules of X, one a row.

    Parameters
    ----------
    X : array-like of shape (n,) or (n, 1)
        SMILES strings or RDKit molecules: a list, an array, a Series, or a table of one column, such as
        ColumnTransformer makes. Missing values are rows without a molecule.

    Raises
    ------
    SmilexError
        If X is one molecule, has several columns, or holds numbers.

    Examples
    --------
    >>> read_molecules(pd.DataFrame({"smiles": ["CCO", "c1ccccc1"]}))
    ['CCO', 'c1ccccc1']
    """
    if isinstance(X, str | bytes | Chem.Mol):
        raise SmilexError(f"{X!r} in place of many molecules: pass a list, for example ['CCO']")
    cells = _cells(X, "X")
    if cells.ndim == 2 and cells.shape[1] == 1:
        cells = cells[:, 0]
    if cells.ndim != 1:
        raise SmilexError(
            f"X has shape {cells.shape} and not one column of molecules: choose one, as in X[['smiles']], or by "
            "ColumnTransformer([('smiles', SmilesEmbedder(), ['smiles'])])"
        )
    molecules = cells.tolist()
    if molecules and not any(isinstance(item, str | Chem.Mol) or pd.isna(item) for item in molecules):
        raise SmilexError(f"X holds {type(molecules[0]).__name__} values, not SMILES strings or RDKit molecules")
    return molecules


def read_labels(y: Any, rows: int) -> NDArray[np.object_]:
    """Return labels as objects, shape (rows,) or (rows, tasks).

    Raises
    ------
    SmilexError
        If there is no y, or it does not have a row for each molecule.

    Examples
    --------
    >>> read_labels(pd.Series([1.5, None]), rows=2)
    array([1.5, nan], dtype=object)
    """
    if y is None:
        raise SmilexError("fit requires y to be passed, but the target y is None")
    labels = _cells(y, "y")
    if labels.ndim not in (1, 2) or 0 in labels.shape[1:]:
        raise SmilexError(f"y has shape {labels.shape}; give (n,) for one task or (n, tasks) for several")
    if len(labels) != rows:
        raise SmilexError(f"y has {len(labels)} rows and X has {rows}; give a label for each molecule")
    return labels


def as_numbers(labels: NDArray[np.object_]) -> NDArray[np.float64]:
    """Return labels as float64, NaN where missing.

    Raises
    ------
    SmilexError
        If a label is no finite number.

    Examples
    --------
    >>> as_numbers(np.array([1, None, pd.NA], dtype=object))
    array([ 1., nan, nan])
    """
    missing = pd.isna(labels)
    try:
        numbers = np.where(missing, np.nan, labels).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise SmilexError(f"y holds labels that are not numbers: {error}") from error
    if np.isinf(numbers).any():
        raise SmilexError("y holds infinite labels: correct them, or mark them as missing by NaN")
    return numbers


def tag_molecules(tags: Tags) -> Tags:
    """Say in an estimator's tags what its X is."""
    tags.input_tags.string = True
    tags.input_tags.one_d_array = True
    # As for scikit-learn's own text vectorizers: X is no table of numbers. One column as a table is taken all the same.
    tags.input_tags.two_d_array = False
    tags.input_tags.allow_nan = True
    return tags


def _cells(values: Any, name: str) -> NDArray[np.object_]:
    uneven = f"{name} has rows of different lengths: give one value a row"
    try:
        cells = np.asarray(values, dtype=object)
    except ValueError as error:
        raise SmilexError(uneven) from error
    if any(isinstance(cell, list | tuple | np.ndarray) for cell in cells.flat):
        raise SmilexError(uneven)
    if cells.ndim == 0:
        raise SmilexError(f"{name} is a {type(values).__name__}: pass a list, an array or a Series")
    return cells
