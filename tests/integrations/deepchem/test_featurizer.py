import gzip
import logging
import pickle
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem, rdBase
from sklearn.linear_model import Ridge

if find_spec("deepchem") is None:
    pytest.skip("DeepChem is not installed; DeepChem 2.8 needs Python < 3.12", allow_module_level=True)

import deepchem as dc

from smilex import embed
from smilex.errors import SmilexError
from smilex.integrations.deepchem import ExLMFeaturizer
from smilex.integrations.deepchem import featurizer as featurizer_module
from smilex.modeling import ExLMModel

SHARED = Path(__file__).parents[3] / "../shared/data/moleculenet"
WIDTH = 32
RINGS = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CC1", "c1ccsc1", "C1CCNCC1", "c1ccoc1", "C1CCC1"]
MOLECULES = ["C" * n + ring + end for ring in RINGS for n in range(1, 5) for end in ("", "O")]
BAD = ["C1CC", "", "c1ccc", "not a molecule", "C(C"]


@pytest.fixture(scope="module")
def encoder(save_encoder, tmp_path_factory):
    # Weights much larger than those of a new model, so that a vector depends on its molecule strongly.
    return save_encoder(tmp_path_factory.mktemp("encoder"), seed=0, initializer_range=0.3)


@pytest.fixture(scope="module")
def featurizer(encoder):
    return ExLMFeaturizer(encoder)


def carbons(smiles):
    return np.array([[text.lower().count("c")] for text in smiles], dtype=float)


def write_csv(path, **columns):
    pd.DataFrame(columns).to_csv(path, index=False)
    return str(path)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_features_are_those_of_embed(encoder, pooling):
    features = ExLMFeaturizer(encoder, pooling).featurize(MOLECULES)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, embed(MOLECULES, encoder, pooling), atol=1e-5)


@pytest.mark.parametrize(
    "given_as",
    [list, tuple, iter, np.array, pd.Series, lambda smiles: [Chem.MolFromSmiles(text) for text in smiles]],
)
def test_molecules_may_come_in_any_form(featurizer, encoder, given_as):
    np.testing.assert_allclose(featurizer(given_as(MOLECULES[:6])), embed(MOLECULES[:6], encoder), atol=1e-5)


@pytest.mark.parametrize("one", ["CCO", Chem.MolFromSmiles("OCC")])
def test_one_molecule_gives_one_row(featurizer, encoder, one):
    np.testing.assert_allclose(featurizer.featurize(one), embed(["CCO"], encoder), atol=1e-5)


def test_molecules_go_through_the_encoder_in_batches_and_the_model_is_loaded_once(encoder, monkeypatch):
    calls = {"load": 0, "forward": 0}

    def counted(name, function):
        def wrapper(*args, **kwargs):
            calls[name] += 1
            return function(*args, **kwargs)

        return wrapper

    monkeypatch.setattr(featurizer_module, "load_model", counted("load", featurizer_module.load_model))
    monkeypatch.setattr(ExLMModel, "forward", counted("forward", ExLMModel.forward))
    featurizer = ExLMFeaturizer(encoder)
    featurizer.featurize(MOLECULES)
    assert calls == {"load": 1, "forward": 1}
    featurizer.featurize(MOLECULES)
    assert calls == {"load": 1, "forward": 2}


@pytest.mark.parametrize(
    "molecules", [["CCO", "C1CC", "CC"], ["C1CC", "CCO"], ["C1CC", "CCO", "", "CC"], ["C1CC", ""], ["C1CC"], "C1CC"]
)
def test_failures_look_as_those_of_deepchems_featurizers(featurizer, molecules):
    ours, theirs = featurizer.featurize(molecules), dc.feat.CircularFingerprint(size=WIDTH).featurize(molecules)
    assert ours.shape == theirs.shape
    assert (ours.dtype == object) == (theirs.dtype == object)
    for mine, reference in zip(ours, theirs, strict=True):
        assert isinstance(mine, np.ndarray)
        assert mine.shape == reference.shape


def test_failures_are_logged_with_their_reason(featurizer, caplog):
    with caplog.at_level(logging.WARNING):
        featurizer.featurize(["CCO", "C1CC", "c1ccc"])
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("Failed to featurize datapoint 1, C1CC. Appending empty array: ")
    assert "ring" in first
    assert second.startswith("Failed to featurize datapoint 2, c1ccc.")


@settings(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from([*MOLECULES[:8], *BAD, None, 3.5])))
def test_each_row_belongs_to_its_molecule(featurizer, molecules):
    features = featurizer.featurize(molecules)
    assert len(features) == len(molecules)
    for molecule, row in zip(molecules, features, strict=True):
        if molecule in MOLECULES:
            np.testing.assert_allclose(row, featurizer.featurize(molecule)[0], atol=1e-4)
        else:
            assert row.shape == (0,)


def test_no_molecule_gives_no_row(featurizer):
    assert featurizer.featurize([]).shape == (0, WIDTH)


def test_in_memory_loader(featurizer, encoder):
    loader = dc.data.InMemoryLoader(["value"], featurizer)
    labelled = loader.create_dataset(list(zip(MOLECULES, range(len(MOLECULES)), strict=True)), shard_size=10)
    np.testing.assert_allclose(labelled.X, embed(MOLECULES, encoder), atol=1e-5)
    np.testing.assert_array_equal(labelled.y.ravel(), range(len(MOLECULES)))
    assert loader.create_dataset(MOLECULES[:4]).X.shape == (4, WIDTH)


def test_in_memory_loader_stops_at_failures_as_with_every_featurizer(featurizer):
    for each in (featurizer, dc.feat.CircularFingerprint()):
        with pytest.raises(ValueError, match="dimension"):
            dc.data.InMemoryLoader(["value"], each).create_dataset([("CCO", 1.0), ("C1CC", 2.0)])


def test_sdf_loader(featurizer, encoder, tmp_path):
    with Chem.SDWriter(str(tmp_path / "molecules.sdf")) as writer:
        for value, smiles in enumerate(MOLECULES[:5]):
            mol = Chem.MolFromSmiles(smiles)
            mol.SetIntProp("value", value)
            writer.write(mol)
    dataset = dc.data.SDFLoader(["value"], featurizer).create_dataset(str(tmp_path / "molecules.sdf"))
    np.testing.assert_allclose(dataset.X, embed(MOLECULES[:5], encoder), atol=1e-5)
    assert dataset.y.ravel().tolist() == [0, 1, 2, 3, 4]


def test_molnet_loader_featurizes_a_local_file(featurizer, encoder, tmp_path):
    name = "measured log solubility in mols per litre"
    write_csv(tmp_path / "delaney-processed.csv", smiles=[*MOLECULES, "C1CC"], **{name: range(len(MOLECULES) + 1)})
    tasks, (train, valid, test), transformers = dc.molnet.load_delaney(
        featurizer, data_dir=str(tmp_path), save_dir=str(tmp_path), reload=False
    )
    assert tasks == [name]
    assert (len(train), len(valid), len(test)) == (48, 8, 8)
    for part in (train, valid, test):
        np.testing.assert_allclose(part.X, embed(list(part.ids), encoder), atol=1e-5)
    values = dict(zip(MOLECULES, range(len(MOLECULES)), strict=True))
    untransformed = dc.trans.undo_transforms(test.y, transformers).ravel()
    np.testing.assert_allclose(untransformed, [values[smiles] for smiles in test.ids])


def test_molnet_loader_reads_the_public_file_of_bbbp(featurizer, encoder, tmp_path):
    source = SHARED / "bbbp.csv.gz"
    if not source.is_file():
        pytest.skip("bbbp.csv.gz is not here")
    with gzip.open(source) as file:
        (tmp_path / "BBBP.csv").write_bytes(file.read())
    _, parts, _ = dc.molnet.load_bbbp(featurizer, data_dir=str(tmp_path), reload=False)
    molecules = [smiles for part in parts for smiles in part.ids]
    with rdBase.BlockLogs():
        expected = [text for text in pd.read_csv(tmp_path / "BBBP.csv")["smiles"] if Chem.MolFromSmiles(text)]
    assert len(expected) == 2039  # of 2050: RDKit refuses 11
    assert sorted(molecules) == sorted(expected)
    np.testing.assert_allclose(parts[2].X, embed(list(parts[2].ids), encoder), atol=1e-5)


def test_molnet_cache_is_not_shared_by_two_encoders(save_encoder, tmp_path):
    write_csv(tmp_path / "BBBP.csv", smiles=MOLECULES, p_np=[0, 1] * (len(MOLECULES) // 2))
    first, second = (save_encoder(tmp_path / str(seed) / "encoder", seed, 0.3) for seed in (1, 2))

    def load(directory):
        arguments = {"data_dir": str(tmp_path), "save_dir": str(tmp_path), "splitter": None}
        return dc.molnet.load_bbbp(ExLMFeaturizer(directory), **arguments)[1][0].X

    fresh = load(first)
    np.testing.assert_array_equal(load(first), fresh)
    np.testing.assert_allclose(load(second), embed(MOLECULES, second), atol=1e-5)
    save_encoder(first, 3, 0.3)  # trained again, in the same place
    np.testing.assert_allclose(load(first), embed(MOLECULES, first), atol=1e-5)


def test_features_train_deepchems_models(featurizer):
    dataset = dc.data.NumpyDataset(featurizer(MOLECULES), carbons(MOLECULES), ids=MOLECULES)
    ridge = dc.models.SklearnModel(Ridge(alpha=1e-3))
    ridge.fit(dataset)
    assert ridge.evaluate(dataset, [dc.metrics.Metric(dc.metrics.r2_score)])["r2_score"] > 0.9
    aromatic = np.array([["c" in smiles] for smiles in MOLECULES], dtype=float)
    dataset = dc.data.NumpyDataset(dataset.X, aromatic)
    torch.manual_seed(0)
    network = dc.models.MultitaskClassifier(1, WIDTH, layer_sizes=[32], dropouts=0.0, learning_rate=0.01)
    network.fit(dataset, nb_epoch=60)
    assert network.predict(dataset).shape == (len(MOLECULES), 1, 2)
    assert network.evaluate(dataset, [dc.metrics.Metric(dc.metrics.roc_auc_score)])["roc_auc_score"] > 0.9


def test_scaffold_splitter_keeps_features_beside_their_molecules(featurizer, encoder, tmp_path):
    file = write_csv(tmp_path / "table.csv", smiles=MOLECULES, value=range(len(MOLECULES)))
    dataset = dc.data.CSVLoader(["value"], featurizer, feature_field="smiles").create_dataset(file)
    parts = dc.splits.ScaffoldSplitter().train_valid_test_split(dataset)
    assert sum(map(len, parts)) == len(MOLECULES)
    for part in parts:
        np.testing.assert_allclose(part.X, embed(list(part.ids), encoder), atol=1e-5)


def test_pickle_holds_no_weights_and_gives_the_same_features(encoder):
    featurizer = ExLMFeaturizer(encoder, "cls")
    features = featurizer(MOLECULES)
    content = pickle.dumps(featurizer)
    assert len(content) < 2000
    np.testing.assert_array_equal(pickle.loads(content)(MOLECULES), features)  # noqa: S301 (written above)


def test_names(encoder, featurizer):
    assert repr(featurizer) == f"ExLMFeaturizer[encoder={encoder}, pooling=mean]".replace("mean", "'mean'")
    name = str(featurizer)
    assert name.startswith(f"ExLMFeaturizer_encoder_{encoder.name}-")
    assert "/" not in name
    assert str(ExLMFeaturizer(str(encoder))) == name
    assert str(ExLMFeaturizer(encoder, "cls")) == f"{name}_pooling_cls"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("no such directory",), "no encoder 'no such directory'"), ((".", "max"), "pooling is 'mean' or 'cls'")],
)
def test_featurizer_refuses_bad_settings_at_once(arguments, message):
    with pytest.raises(SmilexError, match=message):
        ExLMFeaturizer(*arguments)
