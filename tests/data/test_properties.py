import dataclasses
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smilex.data.properties import load_properties
from smilex.errors import SmilexError

SHARED = Path(__file__).parents[2] / "../shared/data/moleculenet"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the MoleculeNet files are not here")

# Rows, tasks and kind as the data's own README states them.
EXPECTED = {
    "bbbp": (2050, 1, "classification"),
    "clintox": (1491, 2, "classification"),
    "sider": (1427, 27, "classification"),
    "tox21": (7831, 12, "classification"),
    "toxcast": (8615, 617, "classification"),
    "muv": (93127, 17, "classification"),
    "hiv": (41127, 1, "classification"),
    "esol": (1128, 1, "regression"),
    "freesolv": (642, 1, "regression"),
    "lipophilicity": (4200, 1, "regression"),
}


def table(**columns):
    return pd.DataFrame({"smiles": ["C", "CC", "CCC"], **columns})


def fails(match, *args, **kwargs):
    with pytest.raises(SmilexError, match=match) as caught:
        load_properties(*args, **kwargs)
    assert "\n" not in str(caught.value)


def test_nav17_is_joined_on_the_molecule_id():
    data = load_properties("nav17")
    assert (len(data), data.name, data.task_names, data.kind) == (1017, "nav17", ["pIC50"], "regression")
    assert data.targets.shape == (1017, 1)
    assert data.targets.dtype == np.float64
    assert not np.isnan(data.targets).any()
    # Molecule 1520012, first line of both files.
    assert data.smiles[0] == "O=S(=O)(Nc1cccs1)c2ccc(Oc3ccccc3c4ccccc4)c(c2)C#N"
    assert data.targets[0, 0] == 5.48
    assert len(set(data.smiles)) > 1000


@needs_shared
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_moleculenet_sets(name):
    data = load_properties(name, data_dir=SHARED)
    rows, tasks, kind = EXPECTED[name]
    assert (len(data), len(data.task_names), data.kind) == (rows, tasks, kind)
    assert data.targets.shape == (rows, tasks)
    raw = pd.read_csv(SHARED / f"{name}.csv.gz", keep_default_na=False, dtype=str)
    assert data.smiles == raw["smiles"].tolist()
    first = raw[data.task_names[0]].to_numpy()
    np.testing.assert_array_equal(np.isnan(data.targets[:, 0]), first == "")
    np.testing.assert_allclose(data.targets[first != "", 0], first[first != ""].astype(float), rtol=1e-15)


def test_a_table_like_bace_mixes_kinds_until_a_target_is_chosen():
    frame = table(Class=[1, 0, 1], pIC50=[9.15, 2.5, 7.0])
    fails(r"mix classes \('Class'\) with measured values \('pIC50'\): choose one kind with target=", frame)
    assert load_properties(frame, target="Class").kind == "classification"
    assert load_properties(frame, target=["pIC50"]).kind == "regression"


def test_a_split_column_is_no_target_and_comes_with_the_rows():
    frame = table(y=[1, 2, 3], part=["train", "valid", None])
    data = load_properties(frame, split_column="part")
    assert data.task_names == ["y"]
    assert data.split_values == ["train", "valid", None]
    assert load_properties(frame, target="y").split_values is None
    other = load_properties(frame.assign(part=["valid", "train", None]), split_column="part")
    assert len({data.fingerprint, other.fingerprint, load_properties(frame, target="y").fingerprint}) == 3


def test_split_columns_that_cannot_be():
    frame = table(y=[1, 2, 3], part=[1, 2, 3])
    fails("no split column 'fold'; the columns are 'y', 'part'", frame, split_column="fold")
    fails("no split column 'smiles'", frame, split_column="smiles")
    fails("no target column 'part'; the columns are 'y'", frame, split_column="part", target="part")
    fails("'smiles' is the only column", table(part=[1, 2, 3]), split_column="part")


def test_moleculenet_folder_from_the_environment(tmp_path, monkeypatch):
    table(p_np=[0, 1, 0]).to_csv(tmp_path / "bbbp.csv.gz", index=False)
    monkeypatch.setenv("SMILEX_DATA", str(tmp_path))
    assert load_properties("bbbp").task_names == ["p_np"]
    fails("there is no folder '.*elsewhere': set data_dir= or SMILEX_DATA", "bbbp", data_dir=tmp_path / "elsewhere")


def test_rows_keep_their_order_and_their_strings():
    frame = pd.DataFrame(
        {"y": [1.5, None, 3.0, 4.0], "SMILES": ["OCC ", None, "not a molecule", ""]}, index=[7, 7, 1, 0]
    )
    data = load_properties(frame)
    assert data.smiles == ["OCC ", "", "not a molecule", ""]
    np.testing.assert_array_equal(data.targets, [[1.5], [np.nan], [3.0], [4.0]])


def test_columns_are_chosen_by_name():
    frame = pd.DataFrame(
        {"smiles": ["x"] * 3, "mol": ["C", "CC", "CCC"], "a": [1, 2, 3.5], "b": [0, 1, 0], 5: [5, 6, 7]}
    )
    data = load_properties(frame, smiles_column="mol", target=["5", "a"])
    assert data.smiles == ["C", "CC", "CCC"]
    assert data.task_names == ["5", "a"]
    np.testing.assert_array_equal(data.targets, [[5, 1], [6, 2], [7, 3.5]])
    assert load_properties(frame, smiles_column="mol", target="b").kind == "classification"


def test_a_file_gives_what_its_table_gives(tmp_path):
    frame = table(a=[0.5, None, 2.0], b=[None, 1e-3, -7.25])
    path = tmp_path / "my.set.csv.gz"
    frame.to_csv(path, index=False)
    data = load_properties(str(path))
    assert data.name == "my.set"
    np.testing.assert_array_equal(data.targets, load_properties(frame).targets)
    assert data.fingerprint == load_properties(frame).fingerprint
    renamed = frame.rename(columns={"smiles": "NA"})
    renamed.to_csv(tmp_path / "b.csv", index=False)
    assert load_properties(tmp_path / "b.csv", smiles_column="NA").smiles == ["C", "CC", "CCC"]


@pytest.mark.parametrize(
    "labels",
    [
        pd.array([1, None, 0], dtype="Int64"),
        pd.array([True, None, False], dtype="boolean"),
        [True, None, False],
        ["1", " ", "0"],
        ["1.0", "NA", "0"],
        [Decimal(1), None, Decimal(0)],
        [np.float32(1), float("nan"), np.int8(0)],
        pd.Categorical([1, None, 0]),
        pd.Categorical(["1", None, "0"]),
        np.array([1, np.nan, 0], dtype=np.float32),
    ],
)
def test_every_way_to_write_labels(labels):
    data = load_properties(table(y=labels))
    np.testing.assert_array_equal(data.targets, [[1], [np.nan], [0]])
    assert data.kind == "classification"


def test_numpy_booleans_are_classes():
    data = load_properties(table(y=np.array([True, False, True])))
    np.testing.assert_array_equal(data.targets, [[1], [0], [1]])


def test_no_such_file_names_the_data_sets():
    fails("'bbp' is neither a file nor the name of a data set; the names are nav17, bace, bace_regression, bbbp", "bbp")
    fails("neither a file", Path("nav17"))
    fails("cannot read 'CCC.*: File name too long", "C" * 5000)
    fails("dataset is a list; give a DataFrame, a path or the name", ["C"])


def test_empty_file_and_no_rows(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("")
    fails("is empty", path)
    path.write_text("smiles,y\n")
    fails("'a' has no rows", path)
    fails("'table' has no rows", pd.DataFrame({"smiles": [], "y": []}))


def test_smiles_column_not_found():
    frame = pd.DataFrame({"molecule": ["C"], "y": [1.0]})
    fails(r"no column is known to hold SMILES: name one with smiles_column; the columns are: 'molecule', 'y'$", frame)
    fails(r"no column is called 'mol' \(smiles_column\); the columns are: 'molecule', 'y'$", frame, smiles_column="mol")
    wide = pd.DataFrame({f"c{i}": [1.0] for i in range(30)})
    fails("'c11' and 18 more", wide)


def test_smiles_column_is_ambiguous_or_holds_numbers():
    fails(
        "several columns may hold SMILES.* smiles_column; .*'SMILES', 'Smiles'",
        pd.DataFrame({"SMILES": ["C"], "Smiles": ["C"]}),
    )
    fails("column 'y' holds no SMILES .row 0: 1.5.", table(y=[1.5, 2, 3]), smiles_column="y")
    two = pd.DataFrame({"SMILES": ["x", "x"], "smiles": ["C", "CC"], "y": [1, 2]})
    fails("several columns may hold SMILES", two, target="y")
    assert load_properties(two, target="y", smiles_column="smiles").smiles == ["C", "CC"]


def test_unknown_or_repeated_targets():
    frame = table(a=[1, 2, 3], b=[4, 5, 6])
    fails("no target column 'c'; the columns are 'a', 'b'", frame, target="c")
    fails("no target column 'smiles'", frame, target=["a", "smiles"])
    fails("target is empty; the columns are 'a', 'b'", frame, target=[])
    fails("target is a column name or a list of them, not 3; the columns are 'a', 'b'", frame, target=3)
    fails("'a' occurs twice", frame, target=["a", "a"])
    fails("'a' occurs twice", frame.set_axis(["smiles", "a", "a"], axis="columns"))
    fails("no target column: 'smiles' is the only column", table())


def test_a_saved_row_index_is_no_target(tmp_path):
    path = tmp_path / "a.csv"
    table(y=[1.5, 2, 3]).to_csv(path)
    fails("column 'Unnamed: 0' has no name in the file; choose the columns to learn with target=", path)
    assert load_properties(path, target="y").task_names == ["y"]


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        (["1", "active", "x"], r"row 1: 'active'"),
        ([1, 2, ">10"], r"row 2: '>10'"),
        ([None, [1], 2], r"row 1: \[1\]"),
        (pd.to_datetime(["2020-01-01"] * 3), r"row 0: Timestamp"),
        (pd.Categorical(["yes", "no", "no"]), r"row 0: 'yes'"),
    ],
)
def test_a_target_column_of_strings(labels, shown):
    fails(rf"target column 'y' is not numeric \({shown}.*target=", table(y=labels))


def test_complex_labels():
    fails("'y' holds complex numbers", table(y=[1j, 2, 3]))


def test_labels_missing():
    fails("all labels are missing in 'y'", table(y=[None, None, None]))
    fails("all labels are missing in 'a', 'b'", table(a=[np.nan] * 3, b=["", " ", "NA"]))
    fails("all labels of 'b' are missing; leave the task out with target=", table(a=[1, 2, 3], b=[None] * 3))


def test_one_class_or_one_value_only():
    fails("'y' has one class only: every label is 1", table(y=[1, None, 1]))
    fails("'b' has one class only: every label is 0", table(a=[0, 1, 0], b=[0, 0, 0]))
    fails("'y' has one value only: every label is 2.5", table(y=[2.5, 2.5, None]))


def test_mixed_kinds():
    fails(
        r"mix classes \('a', 'c'\) with measured values \('b'\): choose one kind with target=",
        table(a=[0, 1, 1], b=[0, 1, 2], c=[1, None, 0]),
    )


@pytest.mark.parametrize("label", [np.inf, -np.inf, "inf", "-Infinity"])
def test_infinite_labels(label):
    fails(r"'y' has an infinite label \(row 1\)", table(y=[1.0, label, 2.0]))


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), min_size=2, max_size=20))
def test_kind_is_classification_exactly_when_every_label_is_0_or_1(labels):
    frame = pd.DataFrame({"smiles": ["C"] * len(labels), "y": labels})
    present = {label for label in labels if label is not None}
    if len(present) < 2:
        fails("missing|only", frame)
    else:
        data = load_properties(frame)
        assert (data.kind == "classification") == (present <= {0, 1})
        np.testing.assert_array_equal(data.targets[:, 0], np.array(labels, dtype=float))


def test_fingerprint_follows_the_content():
    prints = {
        load_properties(frame).fingerprint
        for frame in (
            table(y=[1, 2, 3]),
            table(y=[1, 2, 4]),
            table(y=[1, None, 3]),
            table(z=[1, 2, 3]),
            table(y=[1, 2, 3]).assign(smiles=["C", "CC", "CCN"]),
            table(y=[1, 2, 3]).iloc[::-1],
        )
    }
    assert len(prints) == 6
    # NaN of another bit pattern is the same label.
    strange = np.array([1.0, 0.0, 3.0])
    strange.view(np.uint64)[1] = 0xFFF8000000000001
    assert load_properties(table(y=strange)).fingerprint == load_properties(table(y=[1, None, 3])).fingerprint


def test_a_dataset_is_frozen():
    data = load_properties(table(y=[1, 2, 3]))
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"
