import gzip
import json

import pytest

from smilex import SmilesTokenizer
from smilex.errors import SmilexError
from smilex.inspection import inspect
from smilex.modeling import ExLMConfig, ExLMForMaskedLM, ExLMForMoleculeProperty

SIZES = {
    "vocab_size": len(SmilesTokenizer()),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}


@pytest.mark.parametrize("model_class", [ExLMForMaskedLM, ExLMForMoleculeProperty])
def test_parameters_are_those_of_the_model(tmp_path, model_class):
    config = ExLMConfig(**SIZES, problem_type="regression", id2label={0: "a", 1: "b"}, label2id={"a": 0, "b": 1})
    model = model_class(config)
    model.save_pretrained(tmp_path)
    found = inspect(str(tmp_path))
    saved = model.state_dict().keys() - dict(model.named_parameters()).keys()  # buffers, and weights that are tied
    buffers = sum(model.state_dict()[name].numel() for name in saved & dict(model.named_buffers()).keys())
    assert int(found["parameters"].replace(",", "")) == model.num_parameters() + buffers
    assert found["kind"] == model_class.__name__
    assert found["tasks"] == "'a', 'b'"


def test_weights_that_are_damaged(tmp_path):
    ExLMForMaskedLM(ExLMConfig(**SIZES)).save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(SmilexError, match="model is not whole"):
        inspect(str(tmp_path))
    weights.unlink()
    with pytest.raises(SmilexError, match="model is not whole"):
        inspect(str(tmp_path))


def test_reports_that_are_damaged(tmp_path):
    (tmp_path / "report.json").write_text("{")
    with pytest.raises(SmilexError, match=r"cannot read .*report.json"):
        inspect(str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "way_out"), [({"corpus": "0a", "seed": 7}, "--resume goes on"), ({"seeds": 7}, "start it anew")]
)
def test_runs_that_are_not_finished(tmp_path, settings, way_out):
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    found = inspect(str(tmp_path))
    assert found["kind"].startswith("unfinished run")
    assert way_out in found["kind"]
    assert "7" in found.values()


def test_classes_are_counted(tmp_path, monkeypatch):
    (tmp_path / "bbbp.csv.gz").write_bytes(gzip.compress(b"smiles,p_np\nC,1\nCC,0\nCCC,1\nCCCC,\n"))
    monkeypatch.setenv("SMILEX_DATA", str(tmp_path))
    found = inspect("bbbp")
    assert found["p_np"] == "3 labels, 2 of class 1, 1 of class 0"
    assert found["molecules"] == "4"


def test_names_that_are_nothing():
    with pytest.raises(SmilexError, match=r"no encoder 'nothing'.*sets of molecules are moses, nci5k, nav17, bace"):
        inspect("nothing")
