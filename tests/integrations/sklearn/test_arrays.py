import numpy as np
import pandas as pd
import pytest
from rdkit import Chem
from scipy.sparse import csr_matrix

from smilex.errors import SmilexError
from smilex.integrations.sklearn.arrays import as_numbers, read_labels, read_molecules

SMILES = ["CCO", "c1ccccc1"]
MOLS = [Chem.MolFromSmiles(text) for text in SMILES]


@pytest.mark.parametrize(
    "X",
    [
        SMILES,
        tuple(SMILES),
        np.array(SMILES),
        np.array(SMILES, dtype=object),
        np.array(SMILES)[:, None],
        [[text] for text in SMILES],
        pd.Series(SMILES, index=[7, 3]),
        pd.Series(SMILES, dtype="category"),
        pd.Series(SMILES, dtype="string"),
        pd.Index(SMILES),
        pd.DataFrame({"smiles": SMILES}, index=["a", "b"]),
    ],
    ids=lambda X: type(X).__name__,
)
def test_every_container_of_smiles_gives_the_same_molecules(X):
    assert read_molecules(X) == SMILES
    assert all(isinstance(item, str) for item in read_molecules(X))


@pytest.mark.parametrize("X", [MOLS, np.array(MOLS), pd.Series(MOLS), pd.DataFrame({"mol": MOLS})])
def test_rdkit_molecules_stay_the_objects_that_they_are(X):
    assert all(read is mol for read, mol in zip(read_molecules(X), MOLS, strict=True))


def test_missing_values_are_rows_and_no_rows_are_no_molecules():
    assert read_molecules(pd.DataFrame({"smiles": ["C", None, pd.NA]}, dtype=object)) == ["C", None, pd.NA]
    assert len(read_molecules([np.nan, np.nan])) == 2
    assert read_molecules([]) == []


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("CCO", "pass a list"),
        (b"CCO", "pass a list"),
        (MOLS[0], "pass a list"),
        (3, "X is a int: pass a list"),
        (None, "X is a NoneType: pass a list"),
        ((text for text in SMILES), "X is a generator: pass a list"),
        (csr_matrix(np.eye(2)), "X is a csr_matrix"),
        ({"smiles": SMILES}, "X is a dict: pass a list"),
        (pd.DataFrame({"smiles": SMILES, "y": [1, 2]}), r"shape \(2, 2\).*ColumnTransformer"),
        (np.array([SMILES, SMILES]), r"shape \(2, 2\)"),
        (np.zeros((2, 2, 1)), r"shape \(2, 2, 1\)"),
        (["C", ["C", "CC"]], "rows of different lengths"),
        ([1.5, 2.5], "X holds float values"),
        (np.arange(3), "X holds int values"),
        ([True, False], "X holds bool values"),
    ],
)
def test_what_is_no_column_of_molecules_is_refused(X, message):
    with pytest.raises(SmilexError, match=message):
        read_molecules(X)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed, but the target y is None"),
        ([1, 2, 3], "y has 3 rows and X has 2"),
        (3, "y is a int"),
        (np.zeros((2, 0)), r"shape \(2, 0\)"),
        (np.zeros((2, 1, 1)), r"shape \(2, 1, 1\)"),
        ([[1, 2], [3]], "rows of different lengths"),
        (csr_matrix(np.eye(2)), "y is a csr_matrix"),
    ],
)
def test_labels_of_another_shape_are_refused(y, message):
    with pytest.raises(SmilexError, match=message):
        read_labels(y, rows=2)


@pytest.mark.parametrize(
    "y", [[1, None], pd.Series([1, pd.NA], dtype="Int64"), np.array([1, np.nan]), pd.Series([1, None], dtype=object)]
)
def test_every_kind_of_missing_label_is_nan(y):
    numbers = as_numbers(read_labels(y, rows=2))
    assert numbers.dtype == np.float64
    np.testing.assert_array_equal(numbers, [1, np.nan])


@pytest.mark.parametrize(("y", "message"), [(["high", "low"], "not numbers"), ([1, np.inf], "infinite")])
def test_labels_that_are_no_finite_numbers_are_refused(y, message):
    with pytest.raises(SmilexError, match=message):
        as_numbers(read_labels(y, rows=2))
