import numpy as np
import pytest
from rdkit import Chem

from smilex import SmilesTokenizer
from smilex.data.rows import InvalidMoleculeWarning, encode_rows
from smilex.errors import SmilexError
from smilex.integrations.sklearn import SmilesClassifier, SmilesRegressor
from smilex.integrations.sklearn.base import _hold_out


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs"),
        ({"patience": 0}, "patience"),
        ({"batch_size": 0}, "batch_size"),
        ({"learning_rate": -1}, "learning_rate"),
        ({"validation_fraction": 0}, "validation_fraction"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"pooling": "max"}, "pooling"),
        ({"encoder": None, "model": "huge"}, "unknown model size"),
        ({"encoder": "no-such-encoder"}, "no encoder"),
        ({"model": "tiny"}, "pass encoder=None to start from scratch, or leave model out"),
    ],
)
def test_settings_that_cannot_be_used(quick, molecules, settings, message):
    for estimator, y in ((SmilesRegressor, range(64)), (SmilesClassifier, [0, 1] * 32)):
        with pytest.raises(SmilexError, match=message):
            estimator(**{**quick, **settings}).fit(molecules, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a"] * 64, "1 class, and a classifier needs two"),
        (["a", "b", "c", "d"] * 16, "Only binary classification is supported, and y has 4 classes"),
        (np.linspace(0, 1, 64), "SmilesRegressor for measured values"),
        (["a", None] * 32, "missing labels"),
        ([0.0, np.nan] * 32, "missing labels"),
        (np.full((64, 2), 2), "0, 1 and NaN alone"),
        (np.column_stack([[0, 1] * 32, [np.nan] * 64]), "column 1 of y has no label"),
    ],
)
def test_classes_that_cannot_be_learned(quick, molecules, y, message):
    with pytest.raises(SmilexError, match=message):
        SmilesClassifier(**quick).fit(molecules, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["high"] * 64, "not numbers"),
        ([np.inf] * 64, "infinite"),
        ([np.nan] * 64, "0 different molecules are valid and labelled"),
        ([1e9, 1e9 + 1] * 32, "single precision"),
        ([1e31, 0] * 32, "single precision"),
    ],
)
def test_values_that_cannot_be_learned(quick, molecules, y, message):
    with pytest.raises(SmilexError, match=message):
        SmilesRegressor(**quick).fit(molecules, y)


def test_too_few_molecules(quick):
    for X in (["CCO"], ["CCO", "OCC", "C(O)C"], []):
        with pytest.raises(SmilexError, match="fit needs at least 2"):
            SmilesRegressor(**quick).fit(X, np.arange(float(len(X))))
    with pytest.warns(InvalidMoleculeWarning), pytest.raises(SmilexError, match="1 different molecules"):
        SmilesRegressor(**quick).fit(["CCO", "C1CC"], [1.0, 2.0])
    assert SmilesRegressor(**quick).fit(["CCO", "CC"], [1.0, 2.0]).predict(["C"]).shape == (1,)


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
def test_molecules_held_out_have_the_labels_in_like_shares_and_no_copies(molecules, fraction):
    smiles = [*molecules, *(Chem.MolToSmiles(Chem.MolFromSmiles(text), doRandom=True) for text in molecules), "C1CC"]
    rows = encode_rows(smiles, SmilesTokenizer(), max_length=512)
    targets = np.array([[text.endswith("O")] for text in [*molecules, *molecules, "C"]], dtype=float)
    targets[0] = np.nan
    parts = _hold_out(rows, targets, fraction, seed=3)
    used = np.concatenate([parts.train, parts.valid])
    assert sorted(used) == list(range(1, 128))
    assert len(parts.valid) == pytest.approx(fraction * 127, abs=2)
    assert targets[parts.valid].mean() == pytest.approx(targets[used].mean(), abs=0.1)
    copies = {row % 64 for row in parts.valid} & {row % 64 for row in parts.train}
    assert not copies
    again = _hold_out(rows, targets, fraction, seed=4)
    assert again.valid.tolist() != parts.valid.tolist()
