from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import mean_squared_error, roc_auc_score

if find_spec("deepchem") is None:
    pytest.skip("DeepChem is not installed; DeepChem 2.8 needs Python < 3.12", allow_module_level=True)

import deepchem as dc

from smilex import SmilesTokenizer, predict
from smilex.chem import canonicalize
from smilex.data.rows import InvalidMoleculeWarning
from smilex.errors import SmilexError
from smilex.integrations.deepchem import ExLMTorchModel
from smilex.modeling import ExLMModel
from smilex.modeling.loading import find_encoder, load_model

RINGS = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CC1", "c1ccsc1", "C1CCNCC1", "c1ccoc1", "C1CCC1"]
MOLECULES = ["C" * n + ring + end for ring in RINGS for n in range(1, 5) for end in ("", "O")]


@pytest.fixture(scope="module")
def encoder(save_encoder, tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"), seed=7, initializer_range=0.1)


@pytest.fixture
def make(encoder):
    """Make a model with weights that depend on the seed alone."""

    def build(n_tasks=1, mode="regression", seed=0, **settings):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (DeepChem shuffles with it)
        return ExLMTorchModel(n_tasks, mode, encoder, **settings)

    return build


def carbons(smiles):
    return np.array([[text.lower().count("c")] for text in smiles], dtype=float)


def write_csv(path, **columns):
    pd.DataFrame(columns).to_csv(path, index=False)
    return str(path)


def test_regression_learns_targets_of_any_unit(make):
    for scale, offset in ((1.0, 0.0), (1e-6, 0.0), (1e5, -1e6)):
        y = carbons(MOLECULES) * scale + offset
        dataset = dc.data.NumpyDataset(MOLECULES, y)
        model = make(learning_rate=2e-3)
        model.fit(dataset, nb_epoch=40)
        predicted = model.predict(dataset)
        assert predicted.shape == (len(MOLECULES), 1)
        assert np.corrcoef(predicted[:, 0], y[:, 0])[0, 1] > 0.9
        score = model.evaluate(dataset, [dc.metrics.Metric(dc.metrics.mean_squared_error)])["mean_squared_error"]
        assert score == pytest.approx(mean_squared_error(y, predicted), rel=1e-5)
        assert score < 0.3 * y.var()


def test_classification_learns_and_gives_probabilities_of_both_classes(make):
    y = np.stack([["c" in smiles, smiles.endswith("O")] for smiles in MOLECULES]).astype(float)
    dataset = dc.data.NumpyDataset(MOLECULES, y)
    model = make(2, "classification", learning_rate=2e-3)
    model.fit(dataset, nb_epoch=40)
    predicted = model.predict(dataset)
    assert predicted.shape == (len(MOLECULES), 2, 2)
    np.testing.assert_allclose(predicted.sum(-1), 1, atol=1e-6)
    scores, tasks = model.evaluate(dataset, [dc.metrics.Metric(dc.metrics.roc_auc_score)], per_task_metrics=True)
    by_hand = [roc_auc_score(y[:, task], predicted[:, task, 1]) for task in range(2)]
    np.testing.assert_allclose(tasks["roc_auc_score"], by_hand)
    assert scores["roc_auc_score"] > 0.9


def test_fit_starts_from_the_encoder(make, encoder):
    saved = ExLMModel.from_pretrained(encoder).state_dict()
    for name, weights in make().model.network.exlm.state_dict().items():
        torch.testing.assert_close(weights, saved[name])


def test_an_encoder_from_scratch_and_the_one_of_the_package_where_none_is_named():
    assert ExLMTorchModel(1, encoder=None).model.network.config.hidden_size == 256
    assert ExLMTorchModel(1, encoder=None, model="tiny").model.network.config.hidden_size == 128
    found = ExLMTorchModel(1).model.network.exlm.state_dict()
    for name, weights in load_model(ExLMModel, find_encoder("smilex-small")).state_dict().items():
        torch.testing.assert_close(found[name], weights)


def test_a_prediction_does_not_depend_on_the_batch(make):
    dataset = dc.data.NumpyDataset(MOLECULES)
    np.testing.assert_allclose(make(batch_size=1).predict(dataset), make(batch_size=50).predict(dataset), atol=1e-5)


@pytest.mark.parametrize("mode", ["regression", "classification"])
@pytest.mark.parametrize("missing", [1.0, 0.0, np.nan])
def test_missing_labels_do_not_count(make, mode, missing):
    y = np.random.default_rng(0).integers(0, 2, (len(MOLECULES), 2)).astype(float)
    w = np.ones_like(y)
    w[::3, 0] = 0

    def trained(labels, weights):
        model = make(2, mode)
        model.fit(dc.data.NumpyDataset(MOLECULES, labels, weights), nb_epoch=2)
        return model.predict(dc.data.NumpyDataset(MOLECULES))

    other = y.copy()
    other[::3, 0] = missing
    expected = trained(y, w)
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(trained(other, w), expected)
    if np.isnan(missing):  # without a weight, too
        np.testing.assert_array_equal(trained(other, np.ones_like(y)), expected)


@pytest.mark.parametrize("mode", ["regression", "classification"])
def test_weights_scale_the_loss(make, mode):
    y = (carbons(MOLECULES) > 6).astype(float)
    losses = [
        make(mode=mode).fit(dc.data.NumpyDataset(MOLECULES, y, np.full_like(y, weight)), nb_epoch=1, deterministic=True)
        for weight in (1.0, 2.0)
    ]
    assert losses[1] == pytest.approx(2 * losses[0], rel=0.2)  # two batches: the second follows a step


@pytest.mark.parametrize(("mode", "shape"), [("regression", (3,)), ("classification", (3, 2))])
def test_invalid_molecules_are_predicted_as_nan(make, mode, shape):
    smiles = ["CCO", "C1CC", "c1ccccc1", ""]
    model = make(3, mode)
    with pytest.warns(InvalidMoleculeWarning, match=r"2 of 4 rows(.|\n)*row 1: 'C1CC'"):
        predicted = model.predict(dc.data.NumpyDataset(smiles))
    assert predicted.shape == (4, *shape)
    assert np.isnan(predicted[[1, 3]]).all()
    valid = model.predict(dc.data.NumpyDataset(["CCO", "c1ccccc1"]))
    np.testing.assert_allclose(predicted[[0, 2]], valid, atol=1e-5)


@pytest.mark.parametrize("mode", ["regression", "classification"])
def test_invalid_molecules_have_no_weight_in_fit(make, mode):
    smiles = list(MOLECULES)
    smiles[5] = "C1CC"
    y = (carbons(MOLECULES) > 6).astype(float)
    zero_weight = np.ones_like(y)
    zero_weight[5] = 0

    def trained(X, w):
        model = make(mode=mode)
        if mode == "regression":  # the targets' mean and deviation are taken from all labels
            model.get_global_step = lambda: 1
        model.fit(dc.data.NumpyDataset(X, y, w), nb_epoch=2)
        return model.predict(dc.data.NumpyDataset(MOLECULES))

    with pytest.warns(InvalidMoleculeWarning, match="1 of 64 rows holds no molecule"):
        with_invalid = trained(smiles, None)
    np.testing.assert_allclose(with_invalid, trained(MOLECULES, zero_weight), atol=1e-5)


def test_evaluate_leaves_out_invalid_molecules_and_says_so(make):
    model = make()
    metric = dc.metrics.Metric(dc.metrics.rms_score)
    y = carbons(MOLECULES)
    expected = model.evaluate(dc.data.NumpyDataset(MOLECULES, y), [metric])
    with pytest.warns(InvalidMoleculeWarning, match="1 of 65 rows"):
        found = model.evaluate(dc.data.NumpyDataset(["C1CC", *MOLECULES], np.vstack([[[1e9]], y])), [metric])
    assert found["rms_score"] == pytest.approx(expected["rms_score"], rel=1e-5)


def test_transformers_are_undone(make):
    raw = dc.data.NumpyDataset(MOLECULES, carbons(MOLECULES) * 100)
    normalize = dc.trans.NormalizationTransformer(transform_y=True, dataset=raw)
    model = make()
    model.fit(normalize.transform(raw), nb_epoch=20)
    dataset = normalize.transform(raw)
    predicted = model.predict(dataset, [normalize])
    assert predicted.mean() == pytest.approx(raw.y.mean(), rel=0.1)
    score = model.evaluate(dataset, [dc.metrics.Metric(dc.metrics.rms_score)], [normalize])["rms_score"]
    assert score == pytest.approx(np.sqrt(mean_squared_error(raw.y, predicted)), rel=1e-5)


def test_balancing_transformer_weights(make):
    raw = dc.data.NumpyDataset(MOLECULES, (carbons(MOLECULES) > 8).astype(float))
    balanced = dc.trans.BalancingTransformer(raw).transform(raw)
    assert len(np.unique(balanced.w)) == 2
    assert np.isfinite(make(mode="classification").fit(balanced, nb_epoch=1))


@pytest.mark.parametrize("again", ["reload", "restore"])
def test_save_and_reload(make, encoder, tmp_path, again):
    dataset = dc.data.NumpyDataset(MOLECULES, carbons(MOLECULES) * 50)
    model = make(model_dir=str(tmp_path / "model"))
    model.fit(dataset, nb_epoch=2, checkpoint_interval=0)
    assert not model.get_checkpoints()
    model.save()
    expected = model.predict(dataset)
    other = make(seed=1, model_dir=str(tmp_path / "model"))
    assert not np.allclose(other.predict(dataset), expected)
    getattr(other, again)()
    np.testing.assert_allclose(other.predict(dataset), expected, rtol=1e-6)
    assert other.get_global_step() == model.get_global_step() == 4
    losses = [each.fit(dataset, nb_epoch=1, deterministic=True) for each in (model, other)]
    assert losses[0] == pytest.approx(losses[1], rel=0.2)  # dropout differs, optimizer and scale do not
    with pytest.raises(SmilexError, match="another encoder or another n_tasks"):
        make(n_tasks=2, model_dir=str(tmp_path / "model")).reload()


def test_load_from_pretrained(make):
    dataset = dc.data.NumpyDataset(MOLECULES, carbons(MOLECULES) * 50 - 1000)
    source = make()
    source.fit(dataset, nb_epoch=2)
    same = make(seed=1)
    same.load_from_pretrained(source)
    np.testing.assert_allclose(same.predict(dataset), source.predict(dataset), rtol=1e-6)
    other = make(3, "classification", seed=1)
    other.load_from_pretrained(source, include_top=False)
    torch.testing.assert_close(other.model.network.dense.weight, source.model.network.dense.weight)
    assert other.predict(dataset).shape == (len(MOLECULES), 3, 2)


def test_the_network_inside_is_a_model_for_predict(make, tmp_path):
    dataset = dc.data.NumpyDataset(MOLECULES, carbons(MOLECULES) * 50)
    model = make()
    model.fit(dataset, nb_epoch=1)
    model.model.network.save_pretrained(tmp_path)
    table = predict(tmp_path, MOLECULES)
    np.testing.assert_allclose(table["LABEL_0"], model.predict(dataset)[:, 0], rtol=1e-5)


@pytest.mark.parametrize("mode", ["regression", "classification"])
def test_predictions_average_over_smiles(make, tmp_path, mode):
    """As `smilex.predict` does; an invalid molecule stays NaN."""
    dataset = dc.data.NumpyDataset([*MOLECULES, "C1CC"], np.arange(len(MOLECULES) + 1)[:, None] % 2)
    model, plain = make(mode=mode, averaged_smiles=4), make(mode=mode)
    for each in (model, plain):
        with pytest.warns(InvalidMoleculeWarning):
            each.fit(dataset, nb_epoch=1)
    model.model.network.save_pretrained(tmp_path)
    with pytest.warns(InvalidMoleculeWarning):
        predicted, canonical = model.predict(dataset), plain.predict(dataset)
    positive = predicted[:, 0] if mode == "regression" else predicted[:, 0, 1]
    with pytest.warns(InvalidMoleculeWarning):
        np.testing.assert_allclose(predict(tmp_path, dataset.X)["LABEL_0"], positive, rtol=1e-5)
    assert np.isnan(predicted[-1]).all()
    assert np.nanmax(np.abs(predicted - canonical)) > 1e-3


def test_fit_on_random_smiles_reads_other_ones_each_time(make):
    model = make(random_smiles=True, batch_size=len(MOLECULES))
    seen = []
    forward = model.model.network.forward
    model.model.network.forward = lambda ids: (seen.append([row[row > 0].tolist() for row in ids]), forward(ids))[1]
    dataset = dc.data.NumpyDataset(MOLECULES, carbons(MOLECULES))
    model.fit(dataset, nb_epoch=2, deterministic=True)
    model.predict(dataset)
    texts = [[SmilesTokenizer().decode(row, skip_special_tokens=True) for row in batch] for batch in seen]
    canonical = [canonicalize(text) for text in MOLECULES]
    assert len(texts) == 3
    assert all([canonicalize(text) for text in batch] == canonical for batch in texts)
    assert texts[2] == canonical
    same = sum(one == other for one, other in zip(*texts[:2], strict=True))
    assert same < 0.5 * len(MOLECULES)


def test_dropout_is_that_of_the_setting_or_of_the_encoder(make):
    assert make(dropout=0.3).model.network.dropout.p == 0.3
    assert make().model.network.dropout.p == 0.1


def test_grid_search(make, tmp_path):
    train = dc.data.NumpyDataset(MOLECULES[::2], carbons(MOLECULES[::2]))
    valid = dc.data.NumpyDataset(MOLECULES[1::2], carbons(MOLECULES[1::2]))
    search = dc.hyper.GridHyperparamOpt(make)
    metric = dc.metrics.Metric(dc.metrics.rms_score)
    grid = {"learning_rate": [1e-3, 1e-9], "batch_size": [8]}
    best, chosen, scores = search.hyperparam_search(grid, train, valid, metric, use_max=False, nb_epoch=10)
    assert chosen == {"learning_rate": 1e-3, "batch_size": 8}
    assert len(scores) == 2
    assert best.evaluate(valid, [metric])["rms_score"] == pytest.approx(min(scores.values()))


@pytest.mark.parametrize(
    ("feat", "rows"),
    [(dc.feat.DummyFeaturizer(), 65), (dc.feat.RawFeaturizer(smiles=True), 64), (dc.feat.RawFeaturizer(), 64)],
)
def test_datasets_from_files(make, tmp_path, feat, rows):
    smiles = [*MOLECULES[:20], "C1CC", *MOLECULES[20:]]
    file = write_csv(tmp_path / "table.csv", smiles=smiles, carbons=carbons(smiles).ravel())
    dataset = dc.data.CSVLoader(["carbons"], feat, feature_field="smiles").create_dataset(file, shard_size=25)
    assert len(dataset) == rows
    model = make()
    if rows == 65:
        with pytest.warns(InvalidMoleculeWarning, match="row 20: 'C1CC'"):
            model.fit(dataset, nb_epoch=1)
        with pytest.warns(InvalidMoleculeWarning):
            predicted = model.predict(dataset)
        assert np.flatnonzero(np.isnan(predicted[:, 0])).tolist() == [20]
        predicted = np.delete(predicted, 20, axis=0)
    else:
        model.fit(dataset, nb_epoch=1)
        predicted = model.predict(dataset)
    np.testing.assert_allclose(predicted, model.predict(dc.data.NumpyDataset(MOLECULES)), atol=1e-5)


def test_a_dataset_without_labels_is_predicted(make, tmp_path):
    file = write_csv(tmp_path / "table.csv", smiles=MOLECULES)
    dataset = dc.data.CSVLoader([], dc.feat.DummyFeaturizer(), feature_field="smiles").create_dataset(file)
    assert make(3).predict(dataset).shape == (len(MOLECULES), 3)
    with pytest.raises(SmilexError, match="no labels to learn from"):
        make().fit(dataset)
    assert len(make(3).predict(dc.data.NumpyDataset([], []))) == 0
    assert make(3).predict_on_batch(np.array(MOLECULES[:2])).shape == (2, 3)


def test_molnet_scaffold_split_to_model(make, tmp_path):
    """The whole path: MoleculeNet file, DeepChem's split and transformer, our model, DeepChem's metric."""
    name = "measured log solubility in mols per litre"
    write_csv(tmp_path / "delaney-processed.csv", smiles=MOLECULES, **{name: carbons(MOLECULES).ravel()})
    _, (train, valid, _), transformers = dc.molnet.load_delaney(
        dc.feat.DummyFeaturizer(), data_dir=str(tmp_path), save_dir=str(tmp_path), reload=False
    )
    model = make()
    model.fit(train, nb_epoch=5)
    scores = model.evaluate(valid, [dc.metrics.Metric(dc.metrics.rms_score)], transformers)
    assert 0 < scores["rms_score"] < 10


def test_the_warning_points_at_the_call(make):
    dataset = dc.data.NumpyDataset([*MOLECULES, "C1CC"], carbons([*MOLECULES, "C1CC"]))
    model = make()
    metrics = [dc.metrics.Metric(dc.metrics.rms_score)]
    for call in (model.fit, model.predict, lambda data: model.evaluate(data, metrics)):
        with pytest.warns(InvalidMoleculeWarning) as caught:
            call(dataset)
        assert [warning.filename for warning in caught] == [__file__]


def test_prediction_keeps_no_gradients(make):
    model, gradients = make(), []
    model.model.register_forward_hook(lambda *_: gradients.append(torch.is_grad_enabled()))
    model.predict(dc.data.NumpyDataset(["CCO"]))
    assert gradients == [False]


def test_dropout_is_on_after_a_callback_has_predicted(make):
    dataset = dc.data.NumpyDataset(MOLECULES, carbons(MOLECULES))
    modes = []
    validate = dc.models.ValidationCallback(dataset, 1, [dc.metrics.Metric(dc.metrics.rms_score)])
    make().fit(dataset, nb_epoch=1, callbacks=[validate, lambda model, _: modes.append(model.model.training)])
    assert modes == [True, True]


def test_learning_rate_schedules_and_callbacks_of_deepchem_work(make):
    schedule = dc.models.optimizers.ExponentialDecay(1e-3, 0.9, 1)
    losses = []
    dataset = dc.data.NumpyDataset(MOLECULES, carbons(MOLECULES))
    make(learning_rate=schedule, log_frequency=1).fit(dataset, nb_epoch=3, all_losses=losses)
    assert len(losses) == 6
    assert np.isfinite(losses).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "ranking"}, "mode is"),
        ({"n_tasks": 0}, "at least 1"),
        ({"n_tasks": "1"}, "n_tasks must be a whole number, not '1'"),
        ({"batch_size": 0}, "at least 1"),
        ({"batch_size": 1.5}, "batch_size must be a whole number, not 1.5"),
        ({"random_smiles": "no"}, "random_smiles must be True or False, not 'no'"),
        ({"averaged_smiles": 0}, "at least 1"),
        ({"dropout": 1.0}, "dropout is a share"),
        ({"encoder": "no such"}, "no encoder 'no such'"),
        ({"encoder": None, "model": "huge"}, "unknown model size 'huge'"),
        ({"model": "tiny"}, "pass encoder=None to start from scratch, or leave model out"),
        ({"pooling": "max"}, "pooling is"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(SmilexError, match=message):
        ExLMTorchModel(**{"n_tasks": 1, **arguments})


@pytest.mark.filterwarnings("ignore::smilex.data.rows.InvalidMoleculeWarning")
@pytest.mark.parametrize(
    ("mode", "dataset", "message"),
    [
        ("regression", dc.data.NumpyDataset(["CCO"], np.ones((1, 2))), "y has 2 columns"),
        ("regression", dc.data.NumpyDataset(["CCO"], np.ones((1, 1)), np.ones((1, 2))), "w has 2 columns"),
        ("regression", dc.data.NumpyDataset(["CCO"], np.full((1, 1), np.inf)), "infinite"),
        ("classification", dc.data.NumpyDataset(["CCO"], np.full((1, 1), 2.0)), "labels of 0 and 1"),
        ("regression", dc.data.NumpyDataset(["CCO"], np.ones((1, 1)), np.zeros((1, 1))), "no row holds a molecule"),
        ("regression", dc.data.NumpyDataset([], []), "no labels to learn from"),
        ("regression", dc.data.NumpyDataset(["C1CC"], np.ones((1, 1))), "no row holds a molecule"),
        ("regression", dc.data.NumpyDataset(np.ones((3, 16)), np.ones((3, 1))), "no row holds a molecule"),
    ],
)
def test_fit_refuses_data_that_do_not_fit(make, mode, dataset, message):
    with pytest.raises(SmilexError, match=message):
        make(mode=mode).fit(dataset)


@pytest.mark.filterwarnings("ignore::smilex.data.rows.InvalidMoleculeWarning")
def test_evaluate_refuses_a_dataset_without_a_molecule(make):
    with pytest.raises(SmilexError, match="no row of X holds a molecule"):
        make().evaluate(
            dc.data.NumpyDataset(np.ones((3, 16)), np.ones((3, 1))), [dc.metrics.Metric(dc.metrics.rms_score)]
        )
