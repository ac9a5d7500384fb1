import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import RDConfig
from safetensors.torch import load_file
from transformers import AutoModel, TrainerCallback

import smilex
from smilex.data import descriptor_targets
from smilex.data.corpus import load_corpus
from smilex.errors import SmilexError
from smilex.modeling import ExLMConfig, ExLMForMaskedLM, ExLMModel
from smilex.objectives import OBJECTIVES, get_objective
from smilex.pretraining import PretrainingTrainer, pretrain
from smilex.pretraining_data import PretrainingData
from smilex.tokenization import SmilesTokenizer

# A model and a corpus so small that a step takes milliseconds.
CONFIG = ExLMConfig(
    vocab_size=len(SmilesTokenizer()),
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=100,
)
MORE_MOLECULES = [
    line.split()[0] for line in (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()[:2000]
]
MOLECULES = MORE_MOLECULES[:300]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SMILEX_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def run(output_dir, corpus=MOLECULES, **settings):
    small = {"molecules_per_batch": 50} if settings.get("objective") == "mirror" else {"tokens_per_batch": 1000}
    defaults = {"model": CONFIG, **small, "checkpoint_steps": 4, "progress": False}
    if not {"max_steps", "minutes", "epochs"} & settings.keys():
        settings["max_steps"] = 12
    return pretrain(corpus, output_dir, **{**defaults, **settings})


def weights(directory):
    return load_file(Path(directory) / "model.safetensors")


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SMILEX_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        return run(tmp_path_factory.mktemp("runs") / "whole")


def test_run_directory(uninterrupted):
    names = {path.name for path in uninterrupted.output_dir.iterdir()}
    assert names == {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "settings.json", "metrics.jsonl", "report.json", "loss.png",
    }  # fmt: skip
    report = json.loads((uninterrupted.output_dir / "report.json").read_text())
    assert report == uninterrupted.report
    assert report["steps"] == 12
    assert report["settings"]["seed"] == 0
    assert report["versions"]["smilex"] == smilex.__version__
    assert report["corpus"]["read"] == 300
    assert report["molecules"]["training"] + report["molecules"]["held_out"] == report["corpus"]["kept"]
    rows = [json.loads(line) for line in (uninterrupted.output_dir / "metrics.jsonl").read_text().splitlines()]
    held_out = [row for row in rows if "heldout_loss" in row]
    assert len({row["step"] for row in held_out}) == len(held_out) == 10
    assert {name.removeprefix("heldout_"): value for name, value in held_out[-1].items() if name != "step"} == (
        uninterrupted.metrics
    )


def test_saved_run_loads_as_a_model(uninterrupted):
    model = ExLMForMaskedLM.from_pretrained(uninterrupted.output_dir)
    assert model.config.num_states == 4
    assert smilex.embed(["CCO"], uninterrupted.output_dir).shape == (1, 32)


def log(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("objective", "max_steps"), [("exlm", 400), ("mlm", 150), ("mae_lm", 150)])
def test_filling_objectives_learn(objective, max_steps, tmp_path):
    result = run(tmp_path / "run", MORE_MOLECULES, objective=objective, max_steps=max_steps, learning_rate=3e-3)
    first = next(row for row in log(tmp_path / "run") if "heldout_loss" in row)
    assert result.metrics["loss"] < first["heldout_loss"] - 0.3
    assert result.metrics["masked_accuracy"] > 0.3  # the most frequent token alone: 0.25
    # A uniform guess over the vocabulary has the entropy log V.
    assert result.metrics["entropy"] < 0.8 * np.log(CONFIG.vocab_size)


def test_descriptors_learn(tmp_path):
    result = run(tmp_path / "run", objective="descriptors", max_steps=150, learning_rate=3e-3)
    first = next(row for row in log(tmp_path / "run") if "heldout_loss" in row)
    assert result.metrics["loss"] < first["heldout_loss"] - 0.2
    assert result.metrics["r2"] > first["heldout_r2"] + 0.1 > -1


def test_mirror_learns(tmp_path):
    result = run(tmp_path / "run", objective="mirror", twins="random", max_steps=60, learning_rate=1e-3)
    first = next(row for row in log(tmp_path / "run") if "heldout_loss" in row)
    assert result.metrics["loss"] < first["heldout_loss"] / 2


def test_mexma_learns_and_logs_the_parts_of_its_loss(tmp_path):
    result = run(tmp_path / "run", objective="mexma", max_steps=100, learning_rate=3e-3, tokens_per_batch=3000)
    rows = log(tmp_path / "run")
    first = next(row for row in rows if "heldout_loss" in row)
    assert result.metrics["token_loss"] < first["heldout_token_loss"] - 0.3
    trained = [row for row in rows if "loss" in row]
    assert trained
    for prefix, row in [("", row) for row in trained] + [("heldout_", first)]:
        alignment, token, koleo = (row[f"{prefix}{name}_loss"] for name in ("alignment", "token", "koleo"))
        assert row[f"{prefix}loss"] == pytest.approx(alignment + token + 0.01 * koleo, abs=2e-3)


def encoder_weights(directory):
    """Weights of the encoder alone, by the names that they have there."""
    return {
        name.removeprefix("exlm."): tensor
        for name, tensor in weights(directory).items()
        if not name.startswith(("lm_head.", "transitions."))
    }


@pytest.mark.parametrize("objective", ["mae_lm", "descriptors", "mirror", "mexma"])
def test_only_the_encoder_is_saved_where_the_rest_is_thrown_away(objective, tmp_path):
    run(tmp_path / "run", objective=objective, max_steps=2)
    names = set(weights(tmp_path / "run"))
    assert names == set(ExLMModel(ExLMConfig.from_pretrained(tmp_path / "run")).state_dict())
    assert AutoModel.from_pretrained(tmp_path / "run").config.architectures == ["ExLMModel"]
    assert smilex.embed(["CCO"], tmp_path / "run").shape == (1, 32)
    frame = pd.DataFrame({"smiles": MOLECULES[:40], "length": [float(len(text)) for text in MOLECULES[:40]]})
    tuned = smilex.finetune(
        frame, tmp_path / "tuned", tmp_path / "run", split="random", seeds=1, epochs=1, progress=False
    )
    assert len(smilex.predict(tuned.output_dir, ["CCO"])) == 1
    with pytest.raises(SmilexError, match="with the objective exlm or mlm"):
        smilex.fill_mask("C[MASK]", tmp_path / "run")


def test_held_out_figures_equal_a_plain_computation(uninterrupted, tmp_path):
    """Masked accuracy, perplexity and entropy, molecule by molecule."""
    model = ExLMForMaskedLM.from_pretrained(uninterrupted.output_dir).eval()
    objective = get_objective("exlm")(CONFIG, tokens_per_batch=1000)
    data = PretrainingData(load_corpus(MOLECULES, max_length=100, progress=False), objective, 0)
    correct, surprise, entropy, losses = [], [], [], []
    for batch in data.held_out():
        for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True):
            output = model(ids[None], labels=labels[None])
            losses.append(output.loss.item())
            hidden = labels[labels != -100]
            for probs, token in zip(
                model.mask_log_probs(output, torch.tensor([len(hidden)]))[0].exp(), hidden, strict=True
            ):
                correct.append((probs.argmax() == token).item())
                surprise.append(-probs[token].log().item())
                entropy.append(-(probs * probs.log()).sum().item())
    expected = {
        "loss": np.mean(losses),
        "masked_accuracy": np.mean(correct),
        "perplexity": np.exp(np.mean(surprise)),
        "entropy": np.mean(entropy),
    }
    assert uninterrupted.metrics == pytest.approx(expected, rel=1e-4)


def test_held_out_molecules_are_never_trained_on():
    objective = get_objective("exlm")(CONFIG, tokens_per_batch=1000)
    data = PretrainingData(load_corpus(MOLECULES, max_length=100, progress=False), objective, 3)
    seen = np.concatenate([data.rows[data.batches[step]] for step in range(data.batches.per_epoch)])
    assert not set(seen) & set(data.held_out_rows)
    assert len(set(seen)) + len(data.held_out_rows) == len(data.rows) + len(data.held_out_rows)
    assert len(data.held_out_rows) == round(0.05 * (len(seen) + len(data.held_out_rows)))


def test_a_seed_gives_the_same_weights_and_another_seed_others(uninterrupted, tmp_path):
    again = run(tmp_path / "again")
    assert same(weights(again.output_dir), weights(uninterrupted.output_dir))
    assert again.metrics == uninterrupted.metrics
    assert not same(weights(run(tmp_path / "other", seed=1).output_dir), weights(uninterrupted.output_dir))


class _Interrupt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("step", [2, 4, 7, 12])
def test_an_interrupted_run_resumes_to_the_same_result(uninterrupted, tmp_path, monkeypatch, step):
    plain = PretrainingTrainer.train
    with monkeypatch.context() as patch:

        def interrupted(self, *args, **kwargs):
            self.add_callback(_Interrupt(step))
            return plain(self, *args, **kwargs)

        patch.setattr(PretrainingTrainer, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run")
    result = run(tmp_path / "run", resume=True)
    assert same(weights(result.output_dir), weights(uninterrupted.output_dir))
    assert result.metrics == uninterrupted.metrics
    logs = [(directory / "metrics.jsonl").read_text() for directory in (result.output_dir, uninterrupted.output_dir)]
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    ("objective", "settings"),
    [
        ("mlm", {"masking": "span"}),
        ("mae_lm", {"masking": "group"}),
        ("exlm", {"masking": "group", "random_smiles": True}),
        ("descriptors", {"pooling": "cls", "random_smiles": True}),
        ("mirror", {"twins": "random"}),
        ("mexma", {"masking": "group"}),
    ],
)
def test_each_objective_resumes_to_the_same_result(objective, settings, tmp_path, monkeypatch):
    whole = run(tmp_path / "whole", objective=objective, max_steps=7, **settings)
    plain = PretrainingTrainer.train
    with monkeypatch.context() as patch:

        def interrupted(self, *args, **kwargs):
            self.add_callback(_Interrupt(6))
            return plain(self, *args, **kwargs)

        patch.setattr(PretrainingTrainer, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run", objective=objective, max_steps=7, **settings)
    assert (tmp_path / "run" / "checkpoints" / "checkpoint-4" / "complete.json").is_file()
    result = run(tmp_path / "run", objective=objective, max_steps=7, resume=True, **settings)
    assert same(weights(result.output_dir), weights(whole.output_dir))
    assert result.metrics == whole.metrics
    assert log(result.output_dir) == log(whole.output_dir)


def test_targets_are_computed_once(tmp_path, monkeypatch):
    run(tmp_path / "first", MOLECULES[:40], objective="descriptors", max_steps=1)
    monkeypatch.setattr(descriptor_targets, "compute_descriptors", None)
    result = run(tmp_path / "second", MOLECULES[:40], objective="descriptors", pooling="cls", seed=1, max_steps=1)
    assert result.report["steps"] == 1


def test_a_directory_that_holds_a_run_is_refused_before_targets_are_computed(tmp_path, monkeypatch):
    run(tmp_path / "run", max_steps=1)
    monkeypatch.setattr(PretrainingData, "add_targets", None)
    with pytest.raises(SmilexError, match="already holds a run"):
        run(tmp_path / "run", objective="descriptors", max_steps=1)


def test_a_seed_gives_the_same_weights_for_descriptors(tmp_path):
    first, again, other = (
        run(tmp_path / name, objective="descriptors", random_smiles=True, max_steps=4, seed=seed)
        for name, seed in (("first", 0), ("again", 0), ("other", 1))
    )
    assert same(weights(first.output_dir), weights(again.output_dir))
    assert first.metrics == again.metrics
    assert not same(weights(first.output_dir), weights(other.output_dir))


def test_a_run_of_other_masks_is_not_taken_up(tmp_path):
    run(tmp_path / "run", max_steps=1)
    with pytest.raises(SmilexError, match="masking was 'random' and is 'span'"):
        run(tmp_path / "run", max_steps=1, masking="span", resume=True)


SCRIPT = """
import sys, tests_pretraining as t
t.run(sys.argv[1], resume=True, max_steps=400, checkpoint_steps=5)
"""


def test_kill_minus_nine_loses_nothing(tmp_path):
    whole = run(tmp_path / "whole", max_steps=400, checkpoint_steps=5)
    (tmp_path / "tests_pretraining.py").write_text(Path(__file__).read_text())
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": str(torch.get_num_threads())}
    killed_at = []
    for checkpoint in (20, 100):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, tmp_path / "killed"], env=environment)
        mark = tmp_path / "killed" / "checkpoints"
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            steps = [int(path.parent.name.split("-")[1]) for path in mark.glob("checkpoint-*/complete.json")]
            if max(steps, default=0) >= checkpoint:
                break
            time.sleep(0.01)
        assert process.poll() is None, "the run ended before it could be killed"
        process.send_signal(signal.SIGKILL)
        process.wait()
        killed_at.append(max(int(path.name.split("-")[1]) for path in mark.iterdir()))
        assert not (tmp_path / "killed" / "report.json").exists()
    assert killed_at[0] < killed_at[1] < 400
    result = run(tmp_path / "killed", max_steps=400, checkpoint_steps=5, resume=True)
    assert same(weights(result.output_dir), weights(whole.output_dir))
    assert result.metrics == whole.metrics


def test_a_half_written_checkpoint_is_not_taken_for_a_whole_one(uninterrupted, tmp_path, monkeypatch):
    plain = PretrainingTrainer._save_rng_state

    def cut_off(self, output_dir):
        if self.state.global_step == 8:
            raise KeyboardInterrupt
        plain(self, output_dir)

    with monkeypatch.context() as patch:
        patch.setattr(PretrainingTrainer, "_save_rng_state", cut_off)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "checkpoint-8" / "model.safetensors").is_file()
    assert same(weights(run(tmp_path / "run", resume=True).output_dir), weights(uninterrupted.output_dir))


def test_a_finished_run_is_returned_as_it_is(uninterrupted, monkeypatch):
    monkeypatch.setattr(PretrainingTrainer, "train", None)
    again = run(uninterrupted.output_dir, resume=True)
    assert again.report == uninterrupted.report


def test_minutes_bound_a_run(tmp_path):
    result = run(tmp_path / "run", minutes=0.05, checkpoint_steps=10_000)
    assert 3 <= result.report["seconds"] < 30
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rates = [row["learning_rate"] for row in rows if "learning_rate" in row]
    assert rates[-1] < 0.2 * max(rates)
    held_out = [row["step"] for row in rows if "heldout_loss" in row]
    assert 1 <= len(held_out) <= 10  # fewer than 10 where a step takes longer than a tenth of the time
    assert held_out[-1] == result.report["steps"]


def test_epochs_bound_a_run(tmp_path):
    result = run(tmp_path / "run", epochs=2, tokens_per_batch=5000)
    objective = get_objective("exlm")(CONFIG, tokens_per_batch=5000)
    data = PretrainingData(load_corpus(MOLECULES, max_length=100, progress=False), objective, 0)
    assert result.report["steps"] == 2 * data.batches.per_epoch


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_starting_from_an_encoder_keeps_its_weights(uninterrupted, tmp_path, objective):
    result = run(
        tmp_path / "run", objective=objective, model=None, encoder=uninterrupted.output_dir, max_steps=1,
        learning_rate=1e-12,
    )  # fmt: skip
    before, after = encoder_weights(uninterrupted.output_dir), encoder_weights(result.output_dir)
    assert before.keys() == after.keys()
    for name in after:
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-9, msg=name)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("mae_lm", "exlm"),
        ("mlm", "mexma"),
        ("mirror", "mae_lm"),
        ("exlm", "descriptors"),
        ("descriptors", "exlm"),
    ],
)
def test_any_objective_can_follow_any_other(first, second, tmp_path):
    run(tmp_path / "first", objective=first, max_steps=1)
    run(tmp_path / "second", objective=second, model=None, encoder=tmp_path / "first", max_steps=1, learning_rate=1e-12)
    before, after = encoder_weights(tmp_path / "first"), encoder_weights(tmp_path / "second")
    for name in before:
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-9, msg=name)


def test_the_states_of_the_encoder_are_those_of_the_objective(uninterrupted, tmp_path):
    found = {}
    for objective in OBJECTIVES:
        directory = tmp_path / objective
        run(directory, objective=objective, model=None, encoder=uninterrupted.output_dir, max_steps=1)
        found[objective] = ExLMConfig.from_pretrained(directory).num_states
    assert found == {"exlm": 4, "mlm": 1, "mae_lm": 1, "descriptors": 4, "mirror": 4, "mexma": 1}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mask_ratio": 0}, "mask_ratio is a share"),
        ({"mask_ratio": 1.5}, "mask_ratio is a share"),
        ({"mask_ratio": float("nan")}, "mask_ratio is a share"),
        ({"masking": "all"}, "masking is one of random, span, group, not 'all'"),
        ({"objective": "mirror", "mask_ratio": 0.3}, "mask_ratio means nothing to mirror"),
        ({"objective": "mirror", "tokens_per_batch": 100}, "tokens_per_batch means nothing to mirror"),
        ({"objective": "mexma", "twins": "same"}, "twins means nothing to mexma"),
        ({"twins": "random"}, "twins means nothing to exlm"),
        ({"objective": "mirror", "random_smiles": True}, "random_smiles means nothing to mirror"),
        ({"objective": "mexma", "random_smiles": True}, "random_smiles means nothing to mexma"),
        ({"objective": "descriptors", "mask_ratio": 0.3}, "mask_ratio means nothing to descriptors"),
        ({"objective": "descriptors", "pooling": "max"}, "pooling is mean or cls, not 'max'"),
        ({"objective": "bert"}, "unknown objective 'bert'; there are exlm, mlm"),
        ({"model": "huge"}, "unknown model size 'huge'"),
        ({"model": "tiny", "encoder": "somewhere"}, "either model or encoder"),
        ({"model": None, "encoder": "nowhere"}, "nowhere"),
        ({"tokens_per_batch": 0}, "tokens_per_batch must be positive"),
        ({"checkpoint_steps": 0}, "checkpoint_steps"),
        ({"max_steps": 0}, "max_steps must be positive"),
        ({"epochs": 1, "minutes": 1}, "one of max_steps, epochs or minutes; 2 are given"),
        ({"corpus": []}, "empty"),
        ({"corpus": ["C"]}, "at least 2 molecules"),
        ({"corpus": ["not", "molecules"]}, "none of 2 rows is a molecule"),
        ({"corpus": "no/such/file.smi"}, "file.smi"),
    ],
)
def test_settings_that_cannot_be_used(tmp_path, settings, message):
    with pytest.raises(SmilexError, match=message):
        run(tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_a_loss_that_explodes_is_named(tmp_path):
    with pytest.raises(SmilexError, match="lower learning_rate"):
        run(tmp_path / "run", learning_rate=1e30, max_steps=200)


@pytest.mark.parametrize("writer", ["_save_rng_state", "_save_optimizer_and_scheduler"])
def test_a_disk_that_fills_up(tmp_path, monkeypatch, uninterrupted, writer):
    def full(self, output_dir):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(PretrainingTrainer, writer, full)
        with pytest.raises(SmilexError, match="No space left on device; free space"):
            run(tmp_path / "run")
    assert same(weights(run(tmp_path / "run", resume=True).output_dir), weights(uninterrupted.output_dir))
