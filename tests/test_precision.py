import json

import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import smilex
from smilex.errors import SmilexError
from smilex.modeling import ExLMConfig, ExLMForMaskedLM, dag
from smilex.precision import choose_precision
from smilex.pretraining import pretrain

CONFIG = ExLMConfig.from_preset("tiny", num_hidden_layers=2)
MOLECULES = ["C" * n + end for n in range(1, 41) for end in ("O", "N", "F", "Cl", "C(=O)O")]
TABLE = pd.DataFrame({"smiles": MOLECULES, "length": [len(smiles) for smiles in MOLECULES]})


def train(directory, **settings):
    return pretrain(MOLECULES, directory, model=CONFIG, progress=False, **{"max_steps": 6} | settings)


@pytest.mark.parametrize(
    ("gpu", "able", "chosen"), [(False, False, "fp32"), (True, False, "fp32"), (True, True, "bf16")]
)
def test_the_device_chooses_unless_it_is_said(monkeypatch, gpu, able, chosen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: able)
    assert choose_precision(None) == chosen
    assert choose_precision("fp32") == "fp32"
    assert choose_precision("bf16") == "bf16"


@pytest.mark.parametrize("precision", ["fp16", "", 16, True])
def test_no_such_precision(precision, tmp_path):
    for start in (train, lambda directory, **settings: smilex.finetune(TABLE, directory, None, **settings)):
        with pytest.raises(SmilexError, match=r"^precision is 'fp32' or 'bf16', not"):
            start(tmp_path / "run", precision=precision)
    assert not (tmp_path / "run").exists()


def test_linear_layers_in_bfloat16_and_attention_and_alignment_in_float32(monkeypatch):
    attended, linked, multiplied = [], [], []

    def attend(query, key, value, **settings):
        attended.extend(x.dtype for x in (query, key, value))
        return original(query, key, value, **settings)

    def align(*tensors):
        linked.extend(x.dtype for x in tensors if x.is_floating_point())
        return dag.log_likelihood(*tensors)

    original = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", attend)
    monkeypatch.setattr("smilex.modeling.masked_lm.log_likelihood", align)
    model = ExLMForMaskedLM(CONFIG)
    for module in model.exlm.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda _, __, output: multiplied.append(output.dtype))
    ids = torch.tensor([[2, 20, 4, 21, 3]])
    with torch.autocast("cpu", torch.bfloat16):
        output = model(ids, labels=torch.tensor([[-100, -100, 22, -100, -100]]))
    assert set(multiplied) == {torch.bfloat16}
    assert set(attended) == set(linked) == {output.log_transitions.dtype, output.loss.dtype} == {torch.float32}


@pytest.mark.parametrize("objective", ["exlm", "mlm", "mae_lm", "mirror", "mexma"])
def test_pretraining_in_bf16_follows_that_in_fp32(tmp_path, objective):
    losses = {}
    for precision in ("fp32", "bf16", "fp32"):  # one after the other in one process
        size = {"molecules_per_batch": 50} if objective == "mirror" else {"tokens_per_batch": 1000}
        directory = tmp_path / f"{precision}-{len(losses)}"
        result = train(directory, objective=objective, precision=precision, **size)
        assert result.report["settings"]["precision"] == precision
        log = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
        losses.setdefault(precision, []).append(next(row["loss"] for row in log if "loss" in row))
    first, again = losses["fp32"]
    assert first == again
    assert losses["bf16"][0] != first
    assert losses["bf16"][0] == pytest.approx(first, rel=0.02)


def test_a_run_does_not_go_on_in_another_precision(tmp_path):
    train(tmp_path / "run", precision="bf16")
    with pytest.raises(SmilexError, match="precision"):
        train(tmp_path / "run", precision="fp32", resume=True)


def test_fine_tuning_in_bf16_reports_what_the_saved_model_says(tmp_path):
    settings = {"model": "tiny", "split": "random", "seeds": 1, "epochs": 2, "progress": False}
    tuned = smilex.finetune(TABLE, tmp_path / "run", None, precision="bf16", **settings)
    assert tuned.report["settings"]["precision"] == "bf16"
    again = smilex.predict(tmp_path / "run", MOLECULES)
    pd.testing.assert_series_equal(again["length"], tuned.predictions["length"], rtol=1e-5)
    plain = smilex.finetune(TABLE, tmp_path / "plain", None, **settings)
    assert not plain.predictions["length"].equals(tuned.predictions["length"])
    assert plain.report["settings"]["precision"] == "fp32"
