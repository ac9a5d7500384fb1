import numpy as np
import pandas as pd
import pytest

from smilex import finetune
from smilex.data.splits import split
from smilex.errors import SmilexError

# Ten ring sizes, thus ten scaffolds, four molecules each.
SMILES = [f"{'C' * length}C1{'C' * size}C1" for size in range(1, 11) for length in range(1, 5)]
ODD = np.array([float(text.count("C") % 2) for text in SMILES])
YEARS = np.random.default_rng(0).permutation(np.arange(1980, 1980 + len(SMILES)))
PARTS = np.array(["train", "train", "valid", "test"] * (len(SMILES) // 4))


def parts_of(tmp_path, method, **settings):
    table = pd.DataFrame({"smiles": SMILES, "odd": ODD, "year": YEARS, "part of": PARTS})
    recipe = {"model": "tiny", "seeds": 1, "epochs": 1, "target": "odd", "progress": False}
    return finetune(table, tmp_path / "run", None, split=method, **recipe, **settings).predictions["part"]


@pytest.mark.parametrize("method", ["scaffold", "balanced_scaffold", "random", "stratified"])
def test_parts_are_those_of_split(tmp_path, method):
    expected = split(SMILES, method, targets=ODD[:, None])
    found = parts_of(tmp_path, method)
    for name, rows in expected.parts().items():
        np.testing.assert_array_equal(np.flatnonzero(found == name), rows)


def test_a_column_decides(tmp_path):
    assert parts_of(tmp_path, "column", split_column="part of").tolist() == PARTS.tolist()


def test_the_newest_are_tested(tmp_path):
    found = parts_of(tmp_path, "time", split_column="year")
    assert YEARS[found == "train"].max() < YEARS[found == "valid"].min()
    assert YEARS[found == "valid"].max() < YEARS[found == "test"].min()


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("column", {}, "column"),
        ("time", {}, "column"),
        ("column", {"split_column": "nowhere"}, "no split column 'nowhere'"),
        ("by smell", {}, "unknown split 'by smell'"),
    ],
)
def test_settings_that_cannot_be_used(tmp_path, method, settings, message):
    with pytest.raises(SmilexError, match=message):
        parts_of(tmp_path, method, **settings)
    assert not (tmp_path / "run").exists()
