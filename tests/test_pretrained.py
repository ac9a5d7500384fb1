import importlib
import inspect
import json
import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import spearmanr

import smilex
from smilex import cli
from smilex.inspection import inspect as describe
from smilex.integrations.sklearn import SmilesClassifier, SmilesEmbedder, SmilesRegressor
from smilex.modeling import ExLMConfig, ExLMModel
from smilex.modeling.loading import SHIPPED, find_encoder, load_config
from smilex.runs import save_model
from smilex.tokenization import SmilesTokenizer

ROOT = Path(__file__).parents[1]
SMALL = SHIPPED / "smilex-small"
DRUGS = ["CC(=O)Oc1ccccc1C(=O)O", "CCN(CC)CC(=O)Nc1c(C)cccc1C", "Cn1c(=O)c2c(ncn2C)n(C)c1=O", "[NH3+]CC(=O)[O-]"]


def test_what_ships_is_small_and_in_half_precision():
    assert [path.name for path in SHIPPED.iterdir()] == ["smilex-small"]
    assert sum(path.stat().st_size for path in SMALL.iterdir()) < 20e6
    assert {tensor.dtype for tensor in load_file(SMALL / "model.safetensors").values()} == {torch.float16}


def test_it_is_the_encoder_where_none_is_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert find_encoder(smilex.DEFAULT_ENCODER) == SMALL
    vectors = smilex.embed(DRUGS)
    assert vectors.shape == (len(DRUGS), load_config(SMALL).hidden_size)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    assert not np.allclose(vectors[0], vectors[1], atol=0.1)
    np.testing.assert_array_equal(vectors, smilex.embed(DRUGS, SMALL))


def takers():
    """What takes the encoder of the package where none is named."""
    found = {name: each for name in smilex.__all__ if inspect.isfunction(each := getattr(smilex, name))}
    found |= {f"cli.{name}": getattr(cli, name) for name in ("finetune", "embed", "fill_mask")}
    found |= {kind.__name__: kind for kind in (SmilesEmbedder, SmilesRegressor, SmilesClassifier)}
    if find_spec("deepchem"):
        deepchem = importlib.import_module("smilex.integrations.deepchem")
        found |= {name: getattr(deepchem, name) for name in ("ExLMFeaturizer", "ExLMTorchModel")}
    return {name: each for name, each in found.items() if "encoder" in inspect.signature(each).parameters}


def test_everything_that_takes_an_encoder_defaults_to_it():
    defaults = {name: inspect.signature(each).parameters["encoder"].default for name, each in takers().items()}
    assert defaults.pop("pretrain") is None  # it makes encoders
    assert {"embed", "embed_file", "finetune", "fill_mask", "SmilesRegressor"} <= set(defaults)
    assert set(defaults.values()) == {smilex.DEFAULT_ENCODER}


def test_rounding_to_half_precision_changes_no_prediction_and_no_rank(tmp_path):
    torch.manual_seed(0)
    model = ExLMModel(ExLMConfig.from_preset("tiny"))
    molecules = [f"{'C' * size}{end}" for size in range(1, 21) for end in ("O", "N", "C(=O)O", "c1ccccc1", "F")]
    vectors = []
    for name, dtype in (("whole", torch.float32), ("half", torch.float16)):
        save_model(model.to(dtype), SmilesTokenizer(), tmp_path / name)
        vectors.append(smilex.embed(molecules, tmp_path / name))
    weights = np.random.default_rng(0).normal(size=vectors[0].shape[1]) / 10  # as of a linear head, on one more scale
    whole, half = (found @ weights for found in vectors)
    np.testing.assert_allclose(half, whole, atol=1e-2 * whole.std())
    assert spearmanr(half, whole).statistic > 0.9999


def test_the_card_tells_what_the_report_does():
    card = (SMALL / "README.md").read_text(encoding="utf-8")
    report = json.loads((SMALL / "report.json").read_text(encoding="utf-8"))
    text = " ".join(card.split())

    def spaced(number):
        return f"{number:,}".replace(",", " ")

    assert f"R² is {report['metrics']['r2']:.3f}" in text
    assert f"{spaced(report['corpus']['molecules'])} molecules" in text
    assert f"{round(report['seconds'] / 60)} minutes" in text
    for source in report["corpus"]["sources"]:
        assert f"{spaced(source['new'])} | {source['licence']}" in card
        assert spaced(source["tested_left_out"]) in text


def test_info_describes_it():
    described = describe("smilex-small")
    assert described["kind"] == "ExLMModel"
    assert described["size"] == "4 layers of width 128, 4 attention heads"
    assert described["held-out r2"] == "0.763"
    assert described["licence of the weights"] == "cc-by-sa-3.0"


@pytest.mark.slow
def test_the_wheel_brings_it_along(tmp_path):
    pytest.importorskip("build", reason="build, of the extra 'dev', is not installed")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {f"smilex/pretrained/smilex-small/{path.name}" for path in SMALL.iterdir()} < set(names)
    place = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target"]
    subprocess.run([*pip, place, wheel], check=True, capture_output=True)
    code = "import smilex; print(smilex.__file__); print(smilex.embed(['CCO', 'c1ccccc1']).shape)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "PYTHONPATH": str(place)
    }
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    origin, shape = run.stdout.splitlines()
    assert Path(origin).is_relative_to(place)
    assert shape == "(2, 128)"
