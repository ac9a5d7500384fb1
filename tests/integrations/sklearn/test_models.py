import random
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem
from sklearn.base import clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from smilex import predict
from smilex.data.rows import InvalidMoleculeWarning
from smilex.errors import SmilexError
from smilex.integrations.sklearn import SmilesClassifier, SmilesRegressor
from smilex.modeling import ExLMModel
from smilex.modeling.loading import find_encoder, load_model

BAD = {3: "C1CC", 17: "", 40: None, 41: 3.5, 63: "not a molecule"}


@pytest.fixture
def regressor(encoder):
    return SmilesRegressor(encoder, epochs=20, learning_rate=3e-3, random_state=0)


@pytest.fixture
def classifier(encoder):
    return SmilesClassifier(encoder, epochs=20, learning_rate=3e-3, random_state=0)


def carbons(smiles):
    return np.array([text.lower().count("c") for text in smiles], dtype=float)


def rings(smiles):
    return np.array(["aromatic" if "c" in text else "aliphatic" for text in smiles])


def tasks(smiles):
    return np.array([["c" in text, text.endswith("O")] for text in smiles], dtype=float)


def with_bad_rows(molecules):
    return [BAD.get(row, text) for row, text in enumerate(molecules)]


@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (1e-6, 0.0), (1e5, -1e6)])
def test_regression_learns_targets_of_any_unit(regressor, molecules, scale, offset):
    y = carbons(molecules) * scale + offset
    assert regressor.fit(molecules, y) is regressor
    predicted = regressor.predict(molecules)
    assert predicted.shape == (len(molecules),)
    assert predicted.dtype == np.float64
    assert regressor.score(molecules, y) == pytest.approx(r2_score(y, predicted), abs=1e-6)
    assert regressor.score(molecules, y) > 0.7


def test_classification_learns_any_two_labels(classifier, molecules):
    y = rings(molecules)
    classifier.fit(molecules, y)
    assert classifier.classes_.tolist() == ["aliphatic", "aromatic"]
    probability = classifier.predict_proba(molecules)
    assert probability.shape == (len(molecules), 2)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    predicted = classifier.predict(molecules)
    np.testing.assert_array_equal(predicted, classifier.classes_[probability.argmax(axis=1)])
    assert classifier.score(molecules, y) == accuracy_score(y, predicted) > 0.9


@pytest.mark.parametrize(
    "labels", [[5, -1], [False, True], [0.0, 1.0], ["no", "perhaps"]], ids=lambda labels: type(labels[0]).__name__
)
def test_classes_keep_their_type(quick, molecules, labels):
    y = pd.Series([labels[number % 2] for number in range(len(molecules))], index=range(100, 164))
    classifier = SmilesClassifier(**quick).fit(molecules, y)
    assert classifier.classes_.tolist() == sorted(labels)
    predicted = classifier.predict(molecules)
    assert isinstance(predicted[0].item() if isinstance(predicted[0], np.generic) else predicted[0], type(labels[0]))
    assert 0 <= classifier.score(molecules, y) <= 1


def test_several_regression_tasks_with_missing_labels(regressor, molecules):
    y = np.stack([carbons(molecules), -100 * carbons(molecules)], axis=1)
    missing = y.copy()
    missing[::3, 0] = np.nan
    missing[1::3, 1] = np.nan
    missing[2] = np.nan
    regressor.fit(molecules, missing)
    predicted = regressor.predict(molecules)
    assert predicted.shape == y.shape
    assert r2_score(y, predicted) > 0.6
    assert regressor.score(molecules, y) == pytest.approx(r2_score(y, predicted), abs=1e-6)
    by_hand = [
        r2_score(missing[~np.isnan(column), task], predicted[~np.isnan(column), task])
        for task, column in enumerate(missing.T)
    ]
    assert regressor.score(molecules, missing) == pytest.approx(np.mean(by_hand), abs=1e-6)


def test_several_classification_tasks_with_missing_labels(classifier, molecules):
    y = tasks(molecules)
    missing = pd.DataFrame(y, columns=["aromatic", "alcohol"])
    missing.iloc[::4, 0] = np.nan
    missing.iloc[1::4, 1] = np.nan
    classifier.fit(molecules, missing)
    assert [classes.tolist() for classes in classifier.classes_] == [[0, 1], [0, 1]]
    probability = classifier.predict_proba(molecules)
    assert [task.shape for task in probability] == [(len(molecules), 2)] * 2
    predicted = classifier.predict(molecules)
    assert predicted.shape == y.shape
    np.testing.assert_array_equal(predicted, np.stack([task.argmax(axis=1) for task in probability], axis=1))
    assert classifier.score(molecules, y) == pytest.approx((predicted == y).mean())
    assert classifier.score(molecules, missing) > 0.8


def test_one_column_stays_a_column(quick, molecules):
    regressor = SmilesRegressor(**quick).fit(molecules, carbons(molecules)[:, None])
    assert regressor.predict(molecules).shape == (len(molecules), 1)
    classifier = SmilesClassifier(**quick).fit(molecules, tasks(molecules)[:, :1])
    assert classifier.predict(molecules).shape == (len(molecules), 1)
    assert [task.shape for task in classifier.predict_proba(molecules)] == [(len(molecules), 2)]


def test_from_scratch(molecules):
    regressor = SmilesRegressor(None, "tiny", epochs=1, random_state=0).fit(molecules, carbons(molecules))
    assert regressor.network_.config.hidden_size == 128
    assert np.isfinite(regressor.predict(molecules)).all()


@pytest.mark.parametrize("kind", [SmilesRegressor, SmilesClassifier])
def test_fit_starts_from_the_encoder_of_the_package_where_none_is_named(kind):
    settings = {"epochs": 1, "learning_rate": 1e-12, "random_state": 0}
    fitted = kind(**settings).fit(["CC", "CO", "CN", "CF"], [0, 1, 0, 1]).network_.exlm.state_dict()
    for name, weights in load_model(ExLMModel, find_encoder("smilex-small")).state_dict().items():
        torch.testing.assert_close(fitted[name], weights, atol=1e-6, rtol=0)


def test_fit_starts_from_the_encoder(quick, molecules):
    settings = {**quick, "learning_rate": 1e-12}
    fitted = SmilesRegressor(**settings).fit(molecules, carbons(molecules)).network_.exlm.state_dict()
    for name, weights in ExLMModel.from_pretrained(quick["encoder"]).state_dict().items():
        torch.testing.assert_close(fitted[name], weights, atol=1e-6, rtol=0)


@pytest.mark.parametrize("make", [np.array, pd.Series, lambda smiles: pd.DataFrame({"smiles": smiles})])
def test_containers_and_molecules_give_the_same_model(quick, molecules, make):
    y = carbons(molecules)
    expected = SmilesRegressor(**quick).fit(molecules, y).predict(molecules)
    fitted = SmilesRegressor(**quick).fit(make(molecules), pd.Series(y, index=range(64, 0, -1)))
    np.testing.assert_array_equal(fitted.predict(make(molecules)), expected)
    mols = [Chem.MolFromSmiles(text) for text in molecules]
    np.testing.assert_allclose(fitted.predict(mols), expected, atol=1e-5)


def test_invalid_molecules_are_left_out_of_fit_and_named(quick, molecules):
    y = carbons(molecules)
    mixed = with_bad_rows(molecules)
    good = [row for row in range(len(molecules)) if row not in BAD]
    with pytest.warns(InvalidMoleculeWarning, match="5 of 64 rows hold no molecule") as caught:
        fitted = SmilesRegressor(**quick).fit(mixed, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    alone = SmilesRegressor(**quick).fit([molecules[row] for row in good], y[good])
    with pytest.warns(InvalidMoleculeWarning, match="5 of 64 rows") as caught:
        predicted = fitted.predict(mixed)
    assert caught[0].filename == __file__
    assert np.flatnonzero(np.isnan(predicted)).tolist() == list(BAD)
    np.testing.assert_allclose(predicted[good], alone.predict([molecules[row] for row in good]), atol=1e-5)
    with pytest.warns(InvalidMoleculeWarning):
        assert fitted.score(mixed, y) == pytest.approx(r2_score(y[good], predicted[good]))


def test_a_classifier_has_nan_probabilities_but_no_class_for_invalid_molecules(quick, molecules):
    mixed = with_bad_rows(molecules)
    for y in (rings(molecules), tasks(molecules)):
        with pytest.warns(InvalidMoleculeWarning):
            classifier = SmilesClassifier(**quick).fit(mixed, y)
        with pytest.warns(InvalidMoleculeWarning, match="5 of 64"):
            probability = classifier.predict_proba(mixed)
        for task in probability if isinstance(probability, list) else [probability]:
            assert np.isnan(task).all(axis=1).nonzero()[0].tolist() == list(BAD)
            assert np.isnan(task).sum() == 2 * len(BAD)
        with pytest.raises(SmilexError, match=r"5 of 64 rows .*row 3: 'C1CC', .*use predict_proba"):
            classifier.predict(mixed)
        good = [row for row in range(len(molecules)) if row not in BAD]
        with pytest.warns(InvalidMoleculeWarning):
            score = classifier.score(mixed, y)
        assert score == pytest.approx(classifier.score([molecules[row] for row in good], y[good]))


def test_the_same_random_state_gives_the_same_model(quick, molecules):
    y = carbons(molecules)
    first, second = (SmilesRegressor(**quick).fit(molecules, y) for _ in range(2))
    np.testing.assert_array_equal(first.predict(molecules), second.predict(molecules))
    other = clone(first).set_params(random_state=1).fit(molecules, y)
    assert np.abs(other.predict(molecules) - first.predict(molecules)).max() > 1e-4
    np.testing.assert_array_equal(first.fit(molecules, y).predict(molecules), second.predict(molecules))
    generator = SmilesRegressor(**{**quick, "random_state": np.random.RandomState(0)})
    drawn = [generator.fit(molecules, y).predict(molecules) for _ in range(2)]
    assert np.abs(drawn[0] - drawn[1]).max() > 1e-4


def test_fit_leaves_global_random_states_alone(quick, molecules):
    def draw():
        return random.random(), np.random.random(), torch.rand(1).item()  # noqa: NPY002 (the global state)

    def seed():
        random.seed(5)
        np.random.seed(5)  # noqa: NPY002
        torch.manual_seed(5)

    seed()
    expected = draw()
    seed()
    SmilesRegressor(**quick).fit(molecules, carbons(molecules))
    assert draw() == expected
    draws = []
    for _ in range(2):
        fitted = SmilesRegressor(**{**quick, "random_state": None}).fit(molecules, carbons(molecules))
        draws.append(fitted.predict(molecules))
    assert np.abs(draws[0] - draws[1]).max() > 1e-4


def test_predictions_do_not_depend_on_the_other_rows_or_their_order(quick, molecules):
    regressor = SmilesRegressor(**quick).fit(molecules, carbons(molecules))
    classifier = SmilesClassifier(**quick).fit(molecules, rings(molecules))
    order = np.random.default_rng(0).permutation(len(molecules))
    for method in (regressor.predict, classifier.predict_proba):
        predicted = method(molecules)
        np.testing.assert_allclose(method(np.array(molecules)[order]), predicted[order], atol=1e-5)
        np.testing.assert_allclose(method(molecules[5:8]), predicted[5:8], atol=1e-5)
        assert len(method([])) == 0


def test_copies_predict_the_same(quick, molecules, reloaded):
    for fitted in (
        SmilesRegressor(**quick).fit(molecules, carbons(molecules)),
        SmilesClassifier(**quick).fit(molecules, rings(molecules)),
        SmilesClassifier(**quick).fit(molecules, tasks(molecules)),
    ):
        method = fitted.predict_proba if isinstance(fitted, SmilesClassifier) else fitted.predict
        for copy in reloaded(fitted):
            assert copy.get_params() == fitted.get_params()
            name = method.__name__
            np.testing.assert_array_equal(getattr(copy, name)(molecules), method(molecules))
        assert not hasattr(clone(fitted), "network_")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_pickle_made_on_a_gpu_holds_weights_on_the_cpu(quick, molecules, reloaded):
    fitted = SmilesRegressor(**quick).fit(molecules, carbons(molecules))
    assert fitted.network_.device.type == "cuda"
    for copy in reloaded(fitted):
        assert copy.network_.device.type == "cpu"
        np.testing.assert_allclose(copy.predict(molecules), fitted.predict(molecules), rtol=1e-5)


def test_the_fitted_network_is_a_model_for_smilex_predict(quick, molecules, tmp_path):
    fitted = SmilesRegressor(**quick).fit(molecules, carbons(molecules))
    fitted.network_.save_pretrained(tmp_path / "model")
    table = predict(tmp_path / "model", molecules)
    np.testing.assert_allclose(table["y0"], fitted.predict(molecules), rtol=1e-6)


def test_settings_of_training_and_prediction_reach_the_network(quick, molecules, tmp_path):
    settings = {**quick, "dropout": 0.3, "averaged_smiles": 4, "random_smiles": True, "layer_decay": 0.9}
    fitted = SmilesClassifier(**settings, balance_classes=True).fit(molecules, rings(molecules))
    assert fitted.network_.dropout.p == 0.3
    fitted.network_.save_pretrained(tmp_path / "model")
    averaged = fitted.predict_proba(molecules)[:, 1]
    np.testing.assert_allclose(predict(tmp_path / "model", molecules)["y0"], averaged, rtol=1e-6)
    fitted.network_.config.averaged_smiles = 1
    assert np.abs(fitted.predict_proba(molecules)[:, 1] - averaged).max() > 1e-4


def test_cross_validation_scores_tasks_with_invalid_molecules(quick, molecules):
    settings = {**quick, "epochs": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InvalidMoleculeWarning)
        mixed = with_bad_rows(molecules)
        y = tasks(molecules)
        y[::5, 0] = np.nan
        for model, labels in (
            (SmilesRegressor(**settings), carbons(molecules)),
            (SmilesClassifier(**settings), rings(molecules)),
            (SmilesClassifier(**settings), y),
        ):
            scores = cross_val_score(model, mixed, labels, cv=KFold(2, shuffle=True, random_state=0))
            assert np.isfinite(scores).all()
            assert len(scores) == 2
        probability = cross_val_predict(
            SmilesClassifier(**settings), mixed, rings(molecules), cv=2, method="predict_proba"
        )
        assert np.isnan(probability[:, 0]).nonzero()[0].tolist() == list(BAD)


def test_scorers_of_scikit_learn(quick, molecules):
    for y, scoring in (
        (rings(molecules), "roc_auc"),
        (rings(molecules), "balanced_accuracy"),
        (tasks(molecules).astype(int), "roc_auc"),
    ):
        assert np.isfinite(cross_val_score(SmilesClassifier(**quick), molecules, y, cv=2, scoring=scoring)).all()
    y = np.stack([carbons(molecules)] * 2, axis=1)
    for labels in (y, y[:, 0]):
        scores = cross_val_score(
            SmilesRegressor(**quick), molecules, labels, cv=2, scoring="neg_root_mean_squared_error"
        )
        assert (scores < 0).all()


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])  # starting processes takes long
def test_grid_search_finds_the_better_setting(quick, molecules, n_jobs):
    search = GridSearchCV(
        make_pipeline(FunctionTransformer(), SmilesRegressor(**{**quick, "epochs": 8})),
        {"smilesregressor__learning_rate": [1e-9, 3e-3]},
        cv=KFold(2, shuffle=True, random_state=0),
        n_jobs=n_jobs,
    )
    search.fit(molecules, carbons(molecules))
    assert search.best_params_ == {"smilesregressor__learning_rate": 3e-3}
    assert search.predict(molecules).shape == (len(molecules),)


def test_one_vs_rest_takes_more_classes(encoder, molecules):
    y = np.array([text.lower().count("c") // 3 for text in molecules])
    assert len(set(y)) > 2
    with pytest.raises(SmilexError, match=r"OneVsRestClassifier\(SmilesClassifier"):
        SmilesClassifier(encoder).fit(molecules, y)
    model = OneVsRestClassifier(SmilesClassifier(encoder, epochs=10, learning_rate=3e-3, random_state=0))
    model.fit(molecules, y)
    assert model.predict_proba(molecules).shape == (len(molecules), len(set(y)))
    assert model.score(molecules, y) > 0.6
    with pytest.warns(InvalidMoleculeWarning):
        assert np.isnan(model.predict_proba(["CCO", "C1CC"])).all(axis=1).tolist() == [False, True]


def test_score_needs_labels_of_the_shape_of_the_predictions(quick, molecules):
    regressor = SmilesRegressor(**quick).fit(molecules, carbons(molecules))
    with pytest.raises(SmilexError, match=r"y has shape \(64, 2\)"):
        regressor.score(molecules, np.zeros((64, 2)))
    with pytest.raises(SmilexError, match="nothing to score"):
        regressor.score(molecules, [np.nan] * 64)
    weights = np.arange(64.0)
    y = carbons(molecules)
    expected = r2_score(y, regressor.predict(molecules), sample_weight=weights)
    assert regressor.score(molecules, y, sample_weight=weights) == pytest.approx(expected)


def test_a_fitted_network_is_ready_and_holds_no_gradients(quick, molecules):
    network = SmilesRegressor(**quick).fit(molecules, carbons(molecules)).network_
    assert not network.training
    assert all(weights.grad is None for weights in network.parameters())


def test_fit_and_predict_print_nothing(quick, molecules, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SmilesRegressor(**quick).fit(molecules, carbons(molecules)).predict(molecules)
        SmilesClassifier(**quick).fit(molecules, rings(molecules)).predict(molecules)
    assert capfd.readouterr() == ("", "")


def test_progress_shows_a_bar(quick, molecules, capfd):
    SmilesRegressor(**quick, progress=True).fit(molecules, carbons(molecules))
    assert capfd.readouterr().err
