import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from smilex.baselines import ecfp4, ecfp4_random_forest, predict_mean, random_forest
from smilex.data.properties import load_properties
from smilex.errors import SmilexError

NAN = float("nan")
# Alcohols and amines: the fingerprint tells them apart.
ALCOHOLS = [f"{'C' * n}O" for n in range(2, 8)]
AMINES = [f"{'C' * n}N" for n in range(2, 8)]
FOREST = {"n_trees": 30, "n_jobs": 1}


def test_ecfp4_is_rdkits_morgan_fingerprint_of_radius_2():
    smiles = ["CCO", "CC(=O)Oc1ccccc1C(=O)O", "C1CC", "[Na+].[Cl-]"]
    bits, valid = ecfp4(smiles)
    assert bits.shape == (4, 2048)
    assert valid.tolist() == [True, True, False, True]
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    for row in (0, 1, 3):
        on = list(generator.GetFingerprint(Chem.MolFromSmiles(smiles[row])).GetOnBits())
        assert np.flatnonzero(bits[row]).tolist() == on
    assert not bits[2].any()


def test_predict_mean_ignores_missing_labels_and_keeps_rows_aligned():
    predictions = predict_mean([[1.0, 0], [NAN, 1], [4.0, 1]], ["C", "C1CC", "CC"])
    np.testing.assert_allclose(predictions, [[2.5, 2 / 3], [NAN, NAN], [2.5, 2 / 3]])


def test_forest_equals_sklearn_on_each_task_with_its_labels():
    rng = np.random.default_rng(0)
    train, test = ALCOHOLS + AMINES, ["CCCCCCCCO", "CC(C)N"]
    targets = rng.normal(size=(12, 2))
    targets[[1, 5, 7], 0] = NAN
    targets[[0, 11], 1] = NAN
    predictions = ecfp4_random_forest(train, targets, test, "regression", seed=3, **FOREST)
    for task in range(2):
        present = ~np.isnan(targets[:, task])
        forest = RandomForestRegressor(30, random_state=3).fit(ecfp4(train)[0][present], targets[present, task])
        np.testing.assert_allclose(predictions[:, task], forest.predict(ecfp4(test)[0]))


def test_forest_of_classes_gives_the_probability_of_class_1():
    train, test = ALCOHOLS + AMINES, ["CCCCCCCCO", "CCCCCCCCN"]
    labels = np.array([[0.0]] * 6 + [[1.0]] * 6)
    predictions = ecfp4_random_forest(train, labels, test, "classification", **FOREST)
    forest = RandomForestClassifier(30, random_state=0).fit(ecfp4(train)[0], labels[:, 0])
    np.testing.assert_allclose(predictions[:, 0], forest.predict_proba(ecfp4(test)[0])[:, 1])
    assert predictions[0, 0] < 0.3
    assert predictions[1, 0] > 0.7


def test_one_class_in_training_is_certain():
    both = ecfp4_random_forest(ALCOHOLS, np.array([[0.0, 1.0]] * 6), ["CCO"], "classification", **FOREST)
    np.testing.assert_array_equal(both, [[0.0, 1.0]])


def test_invalid_molecules_are_not_trained_on_and_give_nan_rows():
    train = [*ALCOHOLS, "C1CC", *AMINES]
    labels = np.array([[0.0]] * 6 + [[1e6]] + [[1.0]] * 6)
    predictions = ecfp4_random_forest(train, labels, ["", "CCO", "bad("], "regression", **FOREST)
    clean = ecfp4_random_forest(ALCOHOLS + AMINES, np.delete(labels, 6, axis=0), ["CCO"], "regression", **FOREST)
    assert np.isnan(predictions[[0, 2]]).all()
    np.testing.assert_allclose(predictions[1], clean[0])
    nothing = ecfp4_random_forest(ALCOHOLS, np.zeros((6, 2)), ["C1CC"], "regression", **FOREST)
    assert nothing.shape == (1, 2)
    assert np.isnan(nothing).all()


def test_forest_of_any_features():
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(20, 3)), rng.normal(size=(5, 3))
    targets = train[:, :2].copy()
    targets[4, 1] = NAN
    predictions = random_forest(train, targets, test, "regression", seed=1, **FOREST)
    forest = RandomForestRegressor(30, random_state=1).fit(np.delete(train, 4, 0), np.delete(targets[:, 1], 4))
    np.testing.assert_allclose(predictions[:, 1], forest.predict(test))
    assert random_forest(train, targets, test[:0], "regression", **FOREST).shape == (0, 2)


def test_same_seed_same_predictions_on_any_number_of_cores():
    data = load_properties("nav17")
    train, test = data.smiles[:150], data.smiles[150:170]
    first, again, other = (
        ecfp4_random_forest(train, data.targets[:150], test, "regression", n_trees=20, seed=seed, n_jobs=jobs)
        for seed, jobs in ((1, 1), (1, 2), (2, 1))
    )
    np.testing.assert_allclose(first, again)
    assert not np.allclose(first, other)


def test_bad_training_data():
    with pytest.raises(SmilexError, match="2 training molecules, but 1 rows of labels"):
        ecfp4_random_forest(["C", "CC"], [[1.0]], ["C"], "regression")
    with pytest.raises(SmilexError, match=r"labels must be \(molecules, tasks\), not \(2,\)"):
        ecfp4_random_forest(["C", "CC"], [1.0, 2.0], ["C"], "regression")
    with pytest.raises(SmilexError, match="task 1 has no training label on a valid molecule"):
        ecfp4_random_forest(["C", "C1"], [[1.0, NAN], [1.0, 2.0]], ["C"], "regression")
    with pytest.raises(SmilexError, match="task 0 has no training label"):
        predict_mean([[NAN], [NAN]], ["C"])
    with pytest.raises(SmilexError, match="task 0 has no training label"):
        predict_mean(np.zeros((0, 1)), ["C"])
    with pytest.raises(SmilexError, match="unknown kind of task 'ranking'"):
        ecfp4_random_forest(["C", "CC"], [[1.0], [2.0]], ["C"], "ranking")
