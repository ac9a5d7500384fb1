"""One file of 100 rows, 5 of them no molecule, on the three ways from a table to predictions."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem, RDConfig
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import smilex
from smilex.cli import app
from smilex.data.rows import InvalidMoleculeWarning
from smilex.integrations.sklearn import SmilesEmbedder, SmilesRegressor
from smilex.modeling import ExLMConfig, ExLMModel
from smilex.modeling.loading import quiet_transformers

BAD = {0: "C1CC", 17: "", 40: "c1cccc1", 41: "CN(C)(C)(C)C", 99: "not a molecule"}
GOOD = [row for row in range(100) if row not in BAD]
WIDTH = 32


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A CSV file with columns smiles, value (which names the row) and sparse (the same, with gaps)."""
    lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()
    molecules = [smiles for line in lines[:150] if Chem.MolFromSmiles(smiles := line.split()[0])]
    smiles = [BAD.get(row, molecules[row]) for row in range(100)]
    path = tmp_path_factory.mktemp("table") / "hundred.csv"
    value = np.arange(100) + 0.5
    sparse = np.where(np.arange(100) % 10, value, np.nan)
    pd.DataFrame({"smiles": smiles, "value": value, "sparse": sparse}).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def table(file):
    return pd.read_csv(file, keep_default_na=False)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    # Weights much larger than those of a new model, so that a vector depends on its molecule strongly.
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = ExLMConfig(**sizes, vocab_size=len(smilex.SmilesTokenizer()), initializer_range=0.3)
    directory = tmp_path_factory.mktemp("encoder")
    with quiet_transformers():
        ExLMModel(config).save_pretrained(directory)
    return directory


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def test_the_command_line_gives_a_row_for_each_row(file, table, encoder, tmp_path):
    tuning = ["--target", "value", "--encoder", encoder, "--split", "random", "--seeds", 2, "--epochs", 1]
    assert "5 of 100 rows" in run("finetune", file, tmp_path / "model", *tuning).stderr
    result = run("predict", tmp_path / "model", file, "--output", tmp_path / "predictions.csv")
    assert "5 of 100 rows hold no molecule" in result.stderr
    assert all(f"row {row}: {text!r}" in result.stderr for row, text in BAD.items())

    numbers = ["value", "value_sd"]
    predicted = pd.read_csv(tmp_path / "predictions.csv", keep_default_na=False, na_values=dict.fromkeys(numbers, ""))
    assert predicted["smiles"].tolist() == table["smiles"].tolist()
    for column in numbers:
        assert np.flatnonzero(predicted[column].isna()).tolist() == list(BAD)
    assert np.flatnonzero(predicted["error"] != "").tolist() == list(BAD)
    alone = smilex.predict(tmp_path / "model", table["smiles"][GOOD])
    assert alone["value"].std() > 0.01
    np.testing.assert_allclose(predicted["value"][GOOD], alone["value"], atol=1e-4)

    tuned = pd.read_csv(tmp_path / "model" / "predictions.csv", keep_default_na=False)
    assert tuned["smiles"].tolist() == table["smiles"].tolist()
    assert tuned["value_measured"].tolist() == table["value"].tolist()
    assert np.flatnonzero(tuned["part"] == "").tolist() == list(BAD)


def test_a_scikit_learn_pipeline_gives_a_row_for_each_row(table, encoder):
    smiles, values = table["smiles"], table["value"]
    pipeline = make_pipeline(SmilesEmbedder(encoder), SimpleImputer(), StandardScaler(), Ridge())
    with pytest.warns(InvalidMoleculeWarning, match="5 of 100"):
        predicted = pipeline.fit(smiles, values).predict(smiles)
    assert predicted.shape == (100,)
    np.testing.assert_allclose(predicted[GOOD], pipeline.predict(smiles[GOOD]), atol=1e-3)
    # What the imputer puts in is the same for each.
    np.testing.assert_allclose(predicted[list(BAD)], predicted[0])


def test_a_scikit_learn_estimator_gives_a_row_for_each_row(table, encoder):
    smiles, values = table["smiles"], table["value"]
    regressor = SmilesRegressor(encoder=encoder, epochs=1, random_state=0)
    with pytest.warns(InvalidMoleculeWarning, match="5 of 100"):
        predicted = regressor.fit(smiles, values).predict(smiles)
    assert np.flatnonzero(np.isnan(predicted)).tolist() == list(BAD)
    np.testing.assert_allclose(predicted[GOOD], regressor.predict(smiles[GOOD]), atol=1e-3)


@pytest.mark.skipif(find_spec("deepchem") is None, reason="DeepChem is not installed; it needs Python < 3.12")
@pytest.mark.parametrize("shard_size", [8192, 30])
def test_the_csv_loader_of_deepchem_leaves_out_what_it_leaves_out_for_its_own_featurizers(
    file, table, encoder, shard_size
):
    from smilex.integrations.deepchem import ExLMFeaturizer
    from smilex.integrations.deepchem.library import deepchem as dc

    def load(featurizer):
        loader = dc.data.CSVLoader(["value", "sparse"], featurizer, feature_field="smiles")
        return loader.create_dataset(str(file), shard_size=shard_size)

    ours, theirs = load(ExLMFeaturizer(encoder)), load(dc.feat.CircularFingerprint())
    assert ours.ids.tolist() == table["smiles"][GOOD].tolist()
    assert ours.y[:, 0].tolist() == table["value"][GOOD].tolist()
    assert ours.X.dtype == np.float32
    np.testing.assert_allclose(ours.X, smilex.embed(ours.ids, encoder), atol=1e-5)
    for part in ("ids", "y", "w"):
        np.testing.assert_array_equal(getattr(ours, part), getattr(theirs, part))
    assert (ours.w[:, 1] == 0).tolist() == [row % 10 == 0 for row in GOOD]
