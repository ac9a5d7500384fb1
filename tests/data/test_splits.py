import contextlib
import datetime as dt
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

from smilex.chem import canonicalize, murcko_scaffold
from smilex.data.properties import load_properties
from smilex.data.splits import (
    METHODS,
    Split,
    duplicate_molecules,
    repeated,
    scaffold_folds,
    shared_among,
    shared_molecules,
    split,
)
from smilex.errors import SmilexError
from smilex.tokenization import SmilesTokenizer

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


DRAWN = ["scaffold", "balanced_scaffold", "random", "stratified"]
NONE_SHARED = {"train_valid": 0, "train_test": 0, "valid_test": 0}


@pytest.mark.parametrize("method", ["scaffold", "balanced_scaffold", "random"])
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
    st.lists(st.sampled_from(VARIED), min_size=3, max_size=39, unique=True),
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
        assert shared_molecules(smiles, parts) == NONE_SHARED


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(DRAWN),
    st.lists(st.sampled_from([*VARIED, "OCC", "Cc1ccccc1", "c1ccccc1C"]), min_size=3, max_size=60),
    st.integers(0, 2**32 - 1),
)
def test_no_molecule_is_in_two_parts_however_often_it_occurs(method, smiles, seed):
    targets = np.random.default_rng(seed).integers(0, 2, (len(smiles), 2)).astype(float)
    try:
        parts = split(smiles, method, (0.5, 0.25, 0.25), seed, targets=targets)
    except SmilexError as error:
        assert "part empty" in str(error)  # noqa: PT017 (either outcome is right)
    else:
        check_is_partition(parts, range(len(smiles)))
        assert shared_molecules(smiles, parts) == NONE_SHARED


@pytest.mark.parametrize("method", ["balanced_scaffold", "random", "stratified"])
def test_parts_are_fixed_by_the_seed(method):
    targets = np.arange(len(VARIED))[:, None] % 2
    first = split(VARIED, method, seed=3, targets=targets)
    np.random.default_rng().random()
    again = split(tuple(VARIED), method, seed=3, targets=targets)
    others = [split(VARIED, method, seed=seed, targets=targets) for seed in range(4, 8)]
    for name, rows in first.parts().items():
        np.testing.assert_array_equal(rows, again.parts()[name])
    assert any(other.train.tolist() != first.train.tolist() for other in others)


def test_parts_of_a_seed_stay_what_they_are():
    # Whoever published results with a seed finds the same parts in every later version.
    smiles = ["C" * n for n in range(1, 21)]
    assert split(smiles, "random", seed=1).test.tolist() == [6, 19]
    targets = (np.arange(20) % 4 == 0)[:, None]
    assert split(smiles, "stratified", (0.5, 0.25, 0.25), 1, targets=targets).test.tolist() == [3, 4, 14, 17, 19]
    assert split(VARIED, "balanced_scaffold", seed=1).test.tolist() == [12, 13, 14, 15]


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


@pytest.mark.parametrize("method", METHODS)
def test_too_few_molecules(method):
    with pytest.raises(SmilexError, match="2 of 4 rows hold a valid molecule; a split needs at least 3"):
        split(["C", "C1", "CC", "("], method)
    with pytest.raises(SmilexError, match="0 of 0 rows"):
        split([], method)


def test_one_molecule_many_times():
    with pytest.raises(
        SmilexError, match=r"random split leaves the (valid|test) part empty .*more different molecules"
    ):
        split(["CCO", "OCC", "C(O)C", "CCO"], "random")


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
    with pytest.raises(SmilexError, match="unknown split 'kmeans'; choose one of 'scaffold', 'balanced_scaffold', "):
        split(VARIED, "kmeans")


def test_balanced_scaffolds_keep_together_and_large_ones_train():
    smiles = molecules("nav17")
    scaffolds = np.array([murcko_scaffold(text) for text in smiles])
    sizes = pd.Series(scaffolds).value_counts()
    valid_parts = set()
    for seed in range(3):
        parts = split(smiles, "balanced_scaffold", seed=seed)
        check_is_partition(parts, range(len(smiles)))
        assert [part.size for part in parts.parts().values()] == pytest.approx([814, 102, 101], abs=3)
        train, valid, test = (set(scaffolds[rows]) for rows in parts.parts().values())
        assert len(train) + len(valid) + len(test) == len(sizes)
        assert set(sizes.index[sizes > 0.05 * len(smiles)]) <= train
        valid_parts.add(tuple(parts.valid))
        # DeepChem's order leaves scaffolds of one molecule for the test part; here common ones are among them.
        assert len(test) < len(set(scaffolds[split(smiles, "scaffold").test]))
    assert len(valid_parts) == 3


@pytest.mark.parametrize("share", [0.03, 0.3])
def test_stratified_parts_have_the_classes_in_the_same_shares(share):
    rng = np.random.default_rng(0)
    smiles = [f"{'C' * (n % 30)}{'N' * (n // 30)}O" for n in range(600)]
    classes = (rng.random(600) < share).astype(float)
    parts = split(smiles, "stratified", (0.7, 0.1, 0.2), targets=classes[:, None])
    check_is_partition(parts, range(600))
    for part, fraction in zip(parts.parts().values(), (0.7, 0.1, 0.2), strict=True):
        for label in (0, 1):
            assert abs((classes[part] == label).sum() - fraction * (classes == label).sum()) <= 1


def test_stratified_parts_of_many_tasks_with_missing_labels():
    rng = np.random.default_rng(1)
    smiles = [f"{'C' * (n % 30)}{'N' * (n // 30)}O" for n in range(900)]
    targets = (rng.random((900, 8)) < np.linspace(0.02, 0.5, 8)).astype(float)
    targets[rng.random((900, 8)) < 0.4] = np.nan
    targets[:50] = np.nan  # no label at all
    parts = split(smiles, "stratified", targets=targets)
    check_is_partition(parts, range(900))
    assert [part.size for part in parts.parts().values()] == pytest.approx([720, 90, 90], abs=4)
    drawn = split(smiles, "random")

    def deviations(some, label):
        """Return how many labels of each task the small parts have more or less than their share."""
        found = targets == label
        return np.array([found[rows].sum(0) - 0.1 * found.sum(0) for rows in (some.valid, some.test)])

    # The rarest labels are exact to the row; the abundant ones take what is left, and do better than a draw too.
    assert abs(deviations(parts, 1)).max() < 1
    assert abs(deviations(drawn, 1)).max() > 3
    assert abs(deviations(parts, 0)).mean() < abs(deviations(drawn, 0)).mean()


def test_stratified_parts_of_measured_values_have_the_same_range():
    data = load_properties("nav17")
    parts = split(data.smiles, "stratified", targets=data.targets)
    check_is_partition(parts, range(len(data)))
    deciles = np.quantile(data.targets, [0.1, 0.3, 0.5, 0.7, 0.9])
    for rows in parts.parts().values():
        shares = [(data.targets[rows] < edge).mean() for edge in deciles]
        np.testing.assert_allclose(shares, [(data.targets < edge).mean() for edge in deciles], atol=0.02)


def test_stratified_bbbp_keeps_classes_and_repeated_molecules_apart():
    smiles = molecules("bbbp")
    data = load_properties("bbbp", data_dir=SHARED)
    parts = split(smiles, "stratified", targets=data.targets)
    assert shared_molecules(smiles, parts) == NONE_SHARED
    assert sum(part.size for part in parts.parts().values()) == 2039
    for rows in parts.parts().values():
        assert data.targets[rows].mean() == pytest.approx(0.765, abs=0.005)


def test_stratified_needs_labels_that_fit():
    with pytest.raises(SmilexError, match="stratified split needs the labels; give targets="):
        split(VARIED, "stratified")
    with pytest.raises(SmilexError, match=r"labels are \(3, 1\) for 39 molecules"):
        split(VARIED, "stratified", targets=[[0], [1], [0]])
    with pytest.raises(SmilexError, match=r"labels are \(39,\) for 39 molecules"):
        split(VARIED, "stratified", targets=np.zeros(39))


@pytest.mark.parametrize("source", ["nci", "bbbp", "esol"])
def test_no_scaffold_is_in_two_folds(source):
    smiles = molecules(source)[:700]
    scaffolds = {row: murcko_scaffold(text) for row, text in enumerate(smiles) if not refused(text)}
    folds = scaffold_folds(smiles, 4, seed=2)
    tests = [fold.test.tolist() for fold in folds]
    assert sorted(row for rows in tests for row in rows) == sorted(scaffolds)
    for index, fold in enumerate(folds):
        check_is_partition(fold, scaffolds)
        assert fold.valid.tolist() == tests[(index + 1) % 4]
        known = {scaffolds[row] for row in [*fold.train, *fold.valid]}
        assert not known & {scaffolds[row] for row in fold.test}
    assert shared_molecules(smiles, folds[0]) == NONE_SHARED
    assert [fold.test.tolist() for fold in scaffold_folds(smiles, 4, seed=2)] == tests
    assert [fold.test.tolist() for fold in scaffold_folds(smiles, 4, seed=3)] != tests


def test_folds_are_about_equally_large():
    smiles = molecules("nav17")
    for seed in range(3):
        assert [fold.test.size for fold in scaffold_folds(smiles, seed=seed)] == pytest.approx([203.4] * 5, abs=1)


def test_folds_that_cannot_be():
    with pytest.raises(SmilexError, match="n_folds is 2; give at least 3"):
        scaffold_folds(VARIED, 2)
    with pytest.raises(SmilexError, match="2 scaffolds are too few for 3 folds"):
        scaffold_folds(["C", "CC", "c1ccccc1", "bad("], 3)


def test_a_column_says_the_part():
    smiles = ["C", "CC", "bad(", "CCC", "CCCC", "CO"]
    parts = split(smiles, "column", column=["test", "train", "train", "valid", "train", "test"])
    assert {name: rows.tolist() for name, rows in parts.parts().items()} == {
        "train": [1, 4],
        "valid": [3],
        "test": [0, 5],
    }
    # The column may put copies of a molecule into two parts; the count says so.
    leaky = split(["CO", "OC", "C"], "column", column=["train", "test", "valid"])
    assert shared_molecules(["CO", "OC", "C"], leaky)["train_test"] == 1


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (None, "the split 'column' follows a column of the table; say which by split_column="),
        (["train", "valid"], "the split column has 2 values for 3 molecules"),
        (["train", "valid", "Test"], "says 'Test' in row 2; it must say train, valid or test"),
        (["train", None, "test"], "says None in row 1"),
        (["train", pd.NA, "test"], "says <NA> in row 1"),
        (["train", "train", "test"], "column split leaves the valid part empty"),
    ],
)
def test_columns_that_do_not_say_the_part(column, message):
    with pytest.raises(SmilexError, match=message):
        split(["C", "CC", "CCC"], "column", column=column)


TEN = ["C" * n for n in range(1, 11)]


@pytest.mark.parametrize(
    "column",
    [
        [2009, 2001, 2002, 2003, 2004, 2005, 2006, 2007, 2008, 2000],
        [9.5, 1, 2, 3, 4, 5, 6, 7, 8, -1],
        ["2009", "2001", "2002", "2003", "2004", "2005", "2006", "2007", "2008", "2000"],
        [f"2020-{month:02}-15" for month in (10, 2, 3, 4, 5, 6, 7, 8, 9, 1)],
        [f"{year}" for year in (2009, 2001, 2002, 2003, 2004)] + [f"200{n}-05-01T12:00:00" for n in (5, 6, 7, 8, 0)],
        list(pd.to_datetime([f"2020-{month:02}-15" for month in (10, 2, 3, 4, 5, 6, 7, 8, 9, 1)])),
        [dt.date(2020, month, 1) for month in (10, 2, 3, 4, 5, 6, 7, 8, 9, 1)],
        np.array([9, 1, 2, 3, 4, 5, 6, 7, 8, 0]),
        [2009, 2001, 2002, 2003, 2004, 2005, "2006-01-01", 2007, 2008, dt.date(2000, 5, 1)],
    ],
)
def test_time_trains_on_the_oldest_and_tests_on_the_newest(column):
    parts = split(TEN, "time", (0.6, 0.2, 0.2), column=column)
    assert parts.train.tolist() == [1, 2, 3, 4, 5, 9]
    assert parts.valid.tolist() == [6, 7]
    assert parts.test.tolist() == [0, 8]


def test_equal_times_keep_their_order_and_invalid_molecules_need_none():
    # Enough rows that an unstable sort would mix them.
    parts = split(["bad(", *["C" * n for n in range(1, 201)]], "time", column=[None, *[1.5, 2.5] * 100])
    assert parts.valid.tolist() == list(range(122, 162, 2))
    assert parts.test.tolist() == list(range(162, 202, 2))


@pytest.mark.parametrize(
    ("value", "message"), [(None, r"row 4 \(None\)"), ("03/04/2019", r"row 4 \('03/04/2019'\): give numbers or YYYY")]
)
def test_times_that_cannot_be_read(value, message):
    column = [f"2020-01-0{n}" for n in range(1, 10)]
    column.insert(4, value)
    with pytest.raises(SmilexError, match=f"the split column has no time in {message}"):
        split(TEN, "time", column=column)
    numbers = [*range(4), value, *range(5, 10)]
    with pytest.raises(SmilexError, match=f"the split column has no time in {message}"):
        split(TEN, "time", column=numbers)


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


@pytest.mark.parametrize("known", [canonicalize, lambda text: tuple(SmilesTokenizer()(canonicalize(text)).input_ids)])
def test_known_molecules_are_counted_as_parsed_ones(known):
    smiles = ["OCC", "N[C@@H](C)C(=O)O", "CCO", "N[C@H](C)C(=O)O", "bad(", "C(O)C", "C[C@H](N)C(=O)O", "bad("]
    duplicates = repeated(None if text == "bad(" else known(text) for text in smiles)
    assert duplicates == duplicate_molecules(smiles)
    parts = Split(np.array([0, 1, 2]), np.array([3, 5]), np.array([6]))
    assert shared_among(duplicates, parts) == shared_molecules(smiles, parts)
