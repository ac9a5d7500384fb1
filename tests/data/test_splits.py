import contextlib
import gzip
import io
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem, RDConfig, rdBase

from smilex.data.properties import load_properties
from smilex.data.splits import Split, duplicate_molecules, shared_molecules, split
from smilex.errors import SmilexError

SHARED = Path(__file__).parents[2] / "../shared/data/moleculenet"
NCI = Path(RDConfig.RDDataDir) / "NCI/first_5K.smi"
SCAFFOLDS = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CC1", "c1ccsc1", "C1CCNCC1", "c1ccoc1", "C1CCC1", "c1cc[nH]c1"]
VARIED = ["C" * n + ring for ring in SCAFFOLDS for n in range(4)] + ["CCO", "CCCN", "CC(=O)O"]


@pytest.fixture(scope="module")
def deepchem_split():
    """Return DeepChem's scaffold split of molecules, as three lists of rows."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Its import prints what optional backends are missing.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        deepchem = pytest.importorskip("deepchem", reason="DeepChem, the oracle, is not installed")

    def run(smiles, fractions):
        empty = np.zeros((len(smiles), 1))
        dataset = deepchem.data.NumpyDataset(empty, empty, ids=np.array(smiles, dtype=object))
        train, valid, test = fractions
        return deepchem.splits.ScaffoldSplitter().split(dataset, frac_train=train, frac_valid=valid, frac_test=test)

    return run


def molecules(source):
    if source == "nav17":
        return load_properties("nav17").smiles
    if source == "nci":
        return [line.split()[0] for line in NCI.read_text().splitlines()[:1500]]
    path = SHARED / f"{source}.csv.gz"
    if not path.is_file():
        pytest.skip(f"{source}.csv.gz is not here")
    with gzip.open(path, "rt") as file:
        return pd.read_csv(file, dtype=str, keep_default_na=False)["smiles"].tolist()


def refused(smiles):
    with rdBase.BlockLogs():
        return Chem.MolFromSmiles(smiles) is None


@pytest.mark.parametrize("fractions", [(0.8, 0.1, 0.1), (0.6, 0.25, 0.15)])
@pytest.mark.parametrize("source", ["nav17", "nci", "bbbp", "bace", "esol"])
def test_scaffold_parts_are_those_of_deepchem(deepchem_split, source, fractions):
    smiles = molecules(source)
    valid_rows = np.array([row for row, text in enumerate(smiles) if not refused(text)])
    assert len(valid_rows) == len(smiles) - {"bbbp": 11}.get(source, 0)
    parts = split(smiles, "scaffold", fractions)
    theirs = deepchem_split([smiles[row] for row in valid_rows], fractions)
    for ours, rows in zip(parts.parts().values(), theirs, strict=True):
        np.testing.assert_array_equal(ours, np.sort(valid_rows[rows]))


def check_is_partition(parts, rows):
    together = np.concatenate(list(parts.parts().values()))
    assert sorted(together.tolist()) == sorted(rows)
    for part in parts.parts().values():
        assert part.dtype == np.int64
        assert part.size
        assert (np.diff(part) > 0).all()


@pytest.mark.parametrize("method", ["scaffold", "random"])
def test_invalid_rows_are_in_no_part_and_change_nothing(method):
    with_invalid = list(VARIED)
    for row in (0, 5, 20):
        with_invalid.insert(row, "C1CC(")
    kept = [row for row, text in enumerate(with_invalid) if text != "C1CC("]
    parts, clean = split(with_invalid, method), split(VARIED, method)
    check_is_partition(parts, kept)
    for ours, theirs in zip(parts.parts().values(), clean.parts().values(), strict=True):
        assert ours.tolist() == [kept[row] for row in theirs]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from(VARIED), min_size=3, max_size=40),
    st.tuples(*[st.integers(1, 20)] * 3),
    st.integers(0, 2**32 - 1),
)
def test_random_parts_cover_every_row_once(smiles, weights, seed):
    fractions = tuple(weight / sum(weights) for weight in weights)
    parts = split(smiles, "random", fractions, seed)
    check_is_partition(parts, range(len(smiles)))
    # Rounding costs less than a row, keeping one molecule in each part at most two.
    for part, fraction in zip(parts.parts().values(), fractions, strict=True):
        assert abs(part.size - fraction * len(smiles)) <= 2


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(VARIED), min_size=3, max_size=40), st.tuples(*[st.integers(1, 20)] * 3))
def test_scaffold_parts_cover_every_row_once_or_say_that_one_is_empty(smiles, weights):
    try:
        parts = split(smiles, "scaffold", tuple(weight / sum(weights) for weight in weights))
    except SmilexError as error:
        assert "part empty" in str(error)  # noqa: PT017 (either outcome is right)
    else:
        check_is_partition(parts, range(len(smiles)))
        assert shared_molecules(smiles, parts) == {"train_valid": 0, "train_test": 0, "valid_test": 0}


def test_random_parts_follow_the_seed():
    rows = [f"{'C' * n}O" for n in range(1, 101)]
    parts = split(rows, "random", seed=1)
    assert [part.size for part in parts.parts().values()] == [80, 10, 10]
    assert parts.test.tolist() == split(rows, "random", seed=1).test.tolist()
    assert parts.test.tolist() != split(rows, "random", seed=2).test.tolist()


def test_random_fractions_are_not_hurt_by_binary_rounding():
    # 0.7 + 0.1 is a little less than 0.8 in binary.
    parts = split([f"{'C' * n}O" for n in range(1, 11)], "random", (0.7, 0.1, 0.2))
    assert [part.size for part in parts.parts().values()] == [7, 1, 2]


def test_scaffold_split_keeps_scaffolds_together_largest_first():
    smiles = ["c1ccccc1", "C1CC1", "Cc1ccccc1", "C1CCC1", "c1ccccc1O", "C1CCCC1"]
    parts = split(smiles, fractions=(0.5, 0.25, 0.25))
    assert parts.train.tolist() == [0, 2, 4]
    # Among equals the group that starts later comes first.
    assert parts.valid.tolist() == [5]
    assert parts.test.tolist() == [1, 3]


@pytest.mark.parametrize("method", ["scaffold", "random"])
def test_too_few_molecules(method):
    with pytest.raises(SmilexError, match="2 of 4 rows hold a valid molecule; a split needs at least 3"):
        split(["C", "C1", "CC", "("], method)
    with pytest.raises(SmilexError, match="0 of 0 rows"):
        split([], method)


def test_a_part_without_molecules():
    with pytest.raises(SmilexError, match=r"leaves the train part empty .*split='random'"):
        split(["CCO", "CCC", "CCN", "CCCl"], "scaffold")


@pytest.mark.parametrize(
    "fractions", [(0.8, 0.2, 0.0), (0.8, 0.1, 0.2), (0.9, 0.1), (1.2, -0.1, -0.1), (0.8, float("nan"), 0.1)]
)
def test_fractions_that_are_no_shares(fractions):
    with pytest.raises(SmilexError, match="three positive shares that sum to 1"):
        split(VARIED, "random", fractions)


def test_unknown_method():
    with pytest.raises(SmilexError, match="unknown split 'time'; choose 'scaffold' or 'random'"):
        split(VARIED, "time")


def test_duplicates_are_found_however_they_are_written():
    smiles = ["OCC", "N[C@@H](C)C(=O)O", "CCO", "N[C@H](C)C(=O)O", "bad(", "C(O)C", "C[C@H](N)C(=O)O", "bad("]
    # The two alanines that are mirror images differ; invalid rows are no molecules.
    assert duplicate_molecules(smiles) == [[0, 2, 5], [1, 6]]
    assert duplicate_molecules(["C", "CC"]) == []


def test_repeated_molecules_of_esol():
    # 11 rows repeat an earlier molecule, as the data's own README says.
    assert sum(len(rows) - 1 for rows in duplicate_molecules(molecules("esol"))) == 11


def test_shared_molecules_are_counted_once():
    smiles = ["CCO", "OCC", "C", "C(C)O", "CC", "C", "bad("]
    parts = Split(np.array([0, 1, 2]), np.array([3, 4]), np.array([5]))
    assert shared_molecules(smiles, parts) == {"train_valid": 1, "train_test": 1, "valid_test": 0}
