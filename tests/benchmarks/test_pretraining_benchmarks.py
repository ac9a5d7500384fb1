import importlib
import json
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F

import smilex
from smilex.data.molecules import Molecule
from smilex.modeling import ExLMConfig, ExLMForMaskedLM, ExLMModel
from smilex.modeling.loading import load_config, load_model
from smilex.objectives import OBJECTIVES
from smilex.pretraining import PretrainResult
from smilex.runs import save_model
from smilex.tokenization import SmilesTokenizer

MOLECULES = [f"{'C' * size}{end}" for size in range(1, 21) for end in ("O", "N", "C(=O)O", "c1ccccc1", "F")]


@pytest.fixture(autouse=True)
def _objectives_of_the_benchmarks_go():
    known = dict(OBJECTIVES)
    yield
    OBJECTIVES.clear()
    OBJECTIVES.update(known)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Benchmarks that train nothing: `trained` lists what smilex.pretrain was asked for, `run` starts a script."""
    encoders = importlib.import_module("pretrained_encoders")
    # Chains share a scaffold; each ring has one of its own.
    smiles = ["C" * size for size in range(1, 31)] + [f"C1{'C' * size}1" for size in range(2, 12)]
    table = pd.DataFrame({"smiles": smiles, "expt": np.arange(len(smiles), dtype=float)})
    (tmp_path / "data").mkdir()
    table.to_csv(tmp_path / "data" / "freesolv.csv", index=False)
    table.assign(p_np=np.arange(len(table)) % 2)[["smiles", "p_np"]].to_csv(tmp_path / "data" / "bbbp.csv", index=False)
    (tmp_path / "corpus.smi").write_text("\n".join(MOLECULES))
    monkeypatch.setenv("SMILEX_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SMILEX_CACHE", str(tmp_path / "cache"))
    encoders._molecules.cache_clear()
    encoders.open_corpus.cache_clear()
    trained = []

    def pretrain(corpus, directory, objective, *, encoder=None, resume, progress, **settings):
        if not (directory / "report.json").is_file():
            assert not directory.exists()
            trained.append({"objective": objective, "encoder": encoder, **settings})
            torch.manual_seed(settings["seed"])
            directory.mkdir(parents=True)
            config = load_config(encoder) if encoder else settings["model"]
            kept = ExLMForMaskedLM if objective in ("mlm", "exlm") else ExLMModel
            save_model(kept(config), SmilesTokenizer(), directory)
            report = {"settings": {"objective": objective}, "steps": 3, "seconds": 90.0 + settings["seed"]}
            (directory / "report.json").write_text(json.dumps(report))
        report = json.loads((directory / "report.json").read_text())
        return PretrainResult(directory, {"loss": 1.5, "perplexity": 2.5}, report)

    monkeypatch.setattr(smilex, "pretrain", pretrain)

    def run(name, *arguments, datasets=("freesolv",), seeds=1):
        script = importlib.import_module(name)
        monkeypatch.setattr(script, "RESULTS", tmp_path / "results")
        trained.clear()
        places = ["--work-dir", tmp_path / "work", "--corpus", tmp_path / "corpus.smi", "--datasets", *datasets]
        script.main([*map(str, places), "--seeds", str(seeds), *map(str, arguments)])
        cells = json.loads((tmp_path / "results" / f"{name}.json").read_text())["cells"]
        return list(trained), cells

    return SimpleNamespace(run=run, encoders=encoders, path=tmp_path, corpus=str(tmp_path / "corpus.smi"))


def test_rows_of_the_objectives_have_equal_budgets_and_share_first_stages(bench):
    trained, cells = bench.run("objectives", "--epochs", 10, "--equal", "molecules")
    names = [cell["method"] for cell in cells]
    assert names == [
        *("mlm", "exlm", "mae_lm", "descriptors"),
        *(f"{first}+{second}" for first in ("mlm", "exlm", "mae_lm") for second in ("mirror", "mexma", "descriptors")),
    ]
    assert {call["precision"] for call in trained} == {"bf16"}
    assert [(call["objective"], call["epochs"]) for call in trained if call["encoder"] is None] == [
        *((name, 10.0) for name in ("mlm", "exlm", "mae_lm", "descriptors")),
        *((name, 8.0) for name in ("mlm", "exlm", "mae_lm")),
    ]
    second = [call for call in trained if call["encoder"] is not None]
    assert [(call["objective"], call["epochs"]) for call in second] == 3 * [
        ("mirror", 2.0),
        ("mexma", 2.0),
        ("descriptors", 2.0),
    ]
    assert [call["encoder"].name.partition("-")[0] for call in second] == [
        name for name in ("mlm", "exlm", "mae_lm") for _ in range(3)
    ]
    assert [cell["seconds"] for cell in cells] == 4 * [90.0] + 9 * [180.0]
    for cell in cells:
        assert cell["analysis"]["pooling"] == ("cls" if cell["method"].endswith("mexma") else "mean")
        assert cell["analysis"]["molecules"] == 5
        assert set(cell["probe"]["freesolv"]) == {"figure", "valid", "test"}
    table = (bench.path / "results" / "objectives.md").read_text()
    assert table.startswith("## Equal molecules\n")
    assert "| mae_lm+mexma | 1 | 1.500 |" in table
    assert (bench.path / "results" / "objectives.png").read_bytes().startswith(b"\x89PNG")


def test_equal_seconds_of_training_and_other_probes_of_encoders_that_are_there(bench):
    wanted = ("--methods", "exlm+mirror", "--minutes", 5)
    trained, cells = bench.run("objectives", *wanted, "--equal", "seconds", seeds=2)
    assert [(call["objective"], call["minutes"], call["seed"]) for call in trained] == [
        ("exlm", 4.0, 0),
        ("mirror", 1.0, 0),
        ("exlm", 4.0, 1),
        ("mirror", 1.0, 1),
    ]
    assert not any("epochs" in call for call in trained)
    again, others = bench.run("objectives", *wanted, "--equal", "seconds", seeds=2, datasets=["freesolv", "bbbp"])
    assert again == []
    assert [list(cell["probe"]) for cell in others] == 2 * [["freesolv", "bbbp"]]
    assert [cell["probe"]["freesolv"] for cell in others] == [cell["probe"]["freesolv"] for cell in cells]
    bench.run("objectives", "--report-only")
    assert "| exlm+mirror | 2 |" in (bench.path / "results" / "objectives.md").read_text()


def test_an_encoder_that_was_cut_off_starts_anew(bench):
    bench.run("exlm_ablation", "--variants", "exlm")
    (encoder,) = (bench.path / "work" / "encoders").iterdir()
    (encoder / "report.json").unlink()
    for place in ("results/exlm_ablation.json", "work/cells/exlm-seed-0.json"):
        (bench.path / place).unlink()
    trained, _ = bench.run("exlm_ablation", "--variants", "exlm")
    assert len(trained) == 1


def test_each_part_of_exlm_is_changed_alone(bench):
    trained, cells = bench.run("exlm_ablation", "--epochs", 4, datasets=[])
    assert {call["objective"] for call in trained} == {"exlm"}
    base, *others = (call for call in trained if call["encoder"] is None)
    (uniform,) = (call for call in trained if call["encoder"] is not None)
    assert {**uniform, "encoder": None, "model": None} == {**base, "model": None}
    changes = []
    for call in others:
        fields, base_fields = (each["model"].own_fields() for each in (call, base))
        change = {name: value for name, value in fields.items() if value != base_fields[name]}
        same = {"model", "tokens_per_batch"}
        change |= {name: value for name, value in call.items() if name not in same and value != base.get(name)}
        changes.append(change)
    assert changes == [
        {"num_states": 1},
        {"num_states": 1, "minutes": 1.5},
        {"num_states": 2},
        {"num_states": 8},
        {"transitions": False},
        {"rotary_2d": False},
        {"first_expanded_layer": 2},
        {"mask_ratio": 0.3},
        {"mask_ratio": 0.45},
        {"masking": "span"},
        {"masking": "group"},
    ]
    assert "epochs" not in others[1]
    assert [cell["variant"] for cell in cells][:3] == ["exlm", "k1", "k1_long"]
    table = (bench.path / "results" / "exlm_ablation.md").read_text()
    assert "| without 2D rotary positions | 1 | 2.500 | – | – | 90 |" in table


def test_transitions_that_start_uniform_do_and_nothing_else_differs(bench):
    config = bench.encoders.new_config("tiny")
    importlib.import_module("exlm_ablation").save_uniform_start(bench.path / "uniform", config, seed=0)
    model = load_model(ExLMForMaskedLM, bench.path / "uniform")
    output = model(SmilesTokenizer().pad([{"input_ids": [2, 20, 4, 21, 4, 4, 3]}], return_tensors="pt")["input_ids"])
    log_e = output.log_transitions[0]
    for state, row in enumerate(log_e[:-1]):
        successors = row[state + 1 :]
        assert successors.numpy(force=True) == pytest.approx(-math.log(len(successors)), abs=0.2)
    torch.manual_seed(0)
    for name, weight in ExLMForMaskedLM(config).named_parameters():
        if not name.startswith("transitions."):
            assert torch.equal(model.get_parameter(name), weight), name


def test_every_objective_takes_as_many_steps(bench, monkeypatch):
    corpus = bench.encoders.open_corpus(bench.corpus)
    config = bench.encoders.new_config("tiny")
    lengths = np.array(corpus.dataset["length"])
    importlib.import_module("corrupted_semantics").repeated_mlm(4)
    monkeypatch.setattr(bench.encoders, "TOKENS_PER_BATCH", 200)
    steps = {}
    for name in ("mlm", "exlm", "mae_lm", "mexma", "repeated_mlm_4"):
        room = bench.encoders.tokens_per_batch(name, config, corpus)
        steps[name] = OBJECTIVES[name](config, tokens_per_batch=room).batches(lengths, 0).per_epoch
    assert max(steps.values()) - min(steps.values()) <= 1


def untrained_encoder(bench):
    torch.manual_seed(0)
    directory = bench.path / "encoder"
    directory.mkdir()
    save_model(ExLMModel(bench.encoders.new_config("tiny")), SmilesTokenizer(), directory)
    return directory


@pytest.mark.parametrize("dataset", ["freesolv", "bbbp"])
def test_a_probe_is_that_of_finetune(bench, dataset):
    encoder = untrained_encoder(bench)
    result = smilex.finetune(dataset, bench.path / "run", encoder, head="linear", seeds=1, progress=False)
    probe = bench.encoders.linear_probe(encoder, dataset)
    for part in ("valid", "test"):
        expected = result.report["metrics"][part]["summary"][probe["figure"]]["mean"]
        assert probe[part] == pytest.approx(expected)


def test_a_probe_reads_tokens_as_often_as_they_are_written(bench):
    assert bench.encoders.repeated([2, 20, 21, 3], 2) == [2, 20, 20, 21, 21, 3]
    encoder = untrained_encoder(bench)
    once, twice = (bench.encoders.linear_probe(encoder, "freesolv", copies=copies) for copies in (1, 2))
    assert once["test"] != twice["test"]


def repeated_objective(copies, p):
    script = importlib.import_module("corrupted_semantics")
    config = ExLMConfig.from_preset("tiny", hidden_size=16, num_attention_heads=2, num_hidden_layers=1)
    return OBJECTIVES[script.repeated_mlm(copies)](config, mask_ratio=p)


@pytest.mark.parametrize(("copies", "p"), [(1, 0.4), (3, 0.7)])
def test_copies_are_masked_each_by_itself_and_told_where_all_are(copies, p):
    objective = repeated_objective(copies, p)
    molecules = [Molecule.read(text) for text in MOLECULES]
    batch = objective.collate(molecules, np.random.default_rng(0))
    lengths = (batch["input_ids"] != 0).sum(1)
    assert lengths.tolist() == objective.encoded_lengths(np.array([len(m.input_ids) for m in molecules])).tolist()
    masked, hidden = [], []
    for molecule, ids, labels in zip(molecules, batch["input_ids"], batch["labels"], strict=True):
        size = len(molecule.input_ids) - 2
        groups, told = (row[1 : 1 + size * copies].view(size, copies) for row in (ids, labels))
        assert [ids[0], ids[1 + size * copies]] == [2, 3]
        tokens = torch.tensor(molecule.input_ids[1:-1]).unsqueeze(1).expand_as(groups)
        assert torch.equal(groups, torch.where(groups == 4, 4, tokens))
        whole = (groups == 4).all(1, keepdim=True).expand_as(groups)
        assert torch.equal(told, torch.where(whole, tokens, -100))
        masked.append((groups == 4).double().mean(1))
        hidden.append(whole[:, 0])
    assert torch.cat(masked).mean().item() == pytest.approx(p, abs=0.03)
    assert torch.cat(hidden).double().mean().item() == pytest.approx(p**copies, abs=0.04)


def test_the_loss_of_repeated_mlm_equals_a_plain_loop():
    objective = repeated_objective(2, 0.6)
    torch.manual_seed(0)
    model = objective.model_class(objective.config).eval()
    batch = objective.collate([Molecule.read(text) for text in MOLECULES[:12]], np.random.default_rng(1))
    losses, found = [], []
    hidden = model.exlm(batch["input_ids"]).last_hidden_state
    scores = model.lm_head(hidden, model.exlm.word_embeddings.weight)
    for row, labels in enumerate(batch["labels"].tolist()):
        for place, label in enumerate(labels):
            if label != -100:
                losses.append(F.cross_entropy(scores[row, place], torch.tensor(label)))
                found.append(scores[row, place].argmax().item() == label)
    parts = objective.losses(model, batch)
    assert parts["loss"].item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)
    assert parts["hidden_accuracy"].item() == pytest.approx(np.mean(found))


def test_a_batch_without_a_hidden_token_costs_nothing():
    objective = repeated_objective(2, 1e-6)
    model = objective.model_class(objective.config)
    parts = objective.losses(model, objective.collate([Molecule.read("CCO")], np.random.default_rng(0)))
    parts["loss"].backward()
    assert parts["loss"].item() == 0


def test_the_grid_has_p_fixed_and_what_is_hidden_fixed(bench):
    script = importlib.import_module("corrupted_semantics")
    for label, line in script.lines().items():
        assert set(line) <= set(script.GRID)
        copies, probabilities = zip(*line, strict=True)
        assert len(set(copies)) == len(line) >= 2
        if label.startswith("p^k"):
            assert [p**k for k, p in line] == pytest.approx([0.15] * 3, abs=1e-3)
        else:
            assert len(set(probabilities)) == 1
    trained, cells = bench.run("corrupted_semantics", "--copies", 1, 2, "--epochs", 3)
    assert [(call["objective"], call["mask_ratio"]) for call in trained] == [
        ("repeated_mlm_1", 0.15),
        ("repeated_mlm_2", 0.15),
        ("repeated_mlm_1", 0.3873),
        ("repeated_mlm_2", 0.3873),
        ("repeated_mlm_1", 0.6223),
        ("repeated_mlm_2", 0.6223),
    ]
    assert [cell["hidden"] for cell in cells][:2] == pytest.approx([0.15, 0.3873])
    assert "| k = 2, p = 0.39 | 1 | 0.39 | 0.15 |" in (bench.path / "results" / "corrupted_semantics.md").read_text()
    assert (bench.path / "results" / "corrupted_semantics.png").read_bytes().startswith(b"\x89PNG")


def test_repeated_mlm_is_an_objective_of_pretrain(tmp_path):
    script = importlib.import_module("corrupted_semantics")
    name = script.repeated_mlm(2)
    run = smilex.pretrain(MOLECULES, tmp_path / "run", name, "tiny", mask_ratio=0.6, max_steps=2, progress=False)
    assert set(run.metrics) == {"loss", "hidden_accuracy"}
    assert load_config(run.output_dir).num_states == 1


def test_a_recipe_is_judged_on_validation_parts_and_changed_in_one_thing(bench):
    wanted = ("--tuned", "--epochs", 2)
    trained, cells = bench.run("encoder_recipe", *wanted, datasets=["freesolv", "bbbp"])
    lengths = [(call["objective"], call["epochs"]) for call in trained if "epochs" in call]
    assert lengths[:5] == [("exlm", 1.0), ("descriptors", 1.2), ("descriptors", 2.2), ("exlm", 2.2), ("mlm", 1.0)]
    assert [length for length in lengths if length[0] in ("mirror", "mexma")] == [("mirror", 0.4), ("mexma", 0.4)]
    sizes = [call["model"] for call in trained if call.get("minutes") == 1.5 and call["encoder"] is None]
    assert [(size.num_hidden_layers, size.hidden_size) for size in sizes] == [(8, 128), (4, 192), (2, 256)]
    assert all(set(figures) == {"figure", "valid"} for cell in cells for figures in cell["probe"].values())
    again, _ = bench.run("encoder_recipe", *wanted, datasets=["freesolv", "bbbp"])
    assert again == []


def test_recipes_stand_in_the_order_of_their_ranks(bench):
    script = importlib.import_module("encoder_recipe")

    def cell(error, auc):
        scores = {"freesolv": {"figure": "rmse", "valid": error}, "bbbp": {"figure": "roc_auc", "valid": auc}}
        return {"stages": [{"held_out": {"loss": 0.5}}], "seconds": 3.0, "probe": scores}

    cells = {
        script.Key("base", 0): cell(2.0, 0.7),
        script.Key("exlm", 0): cell(3.0, 0.6),
        script.Key("descriptors", 0): cell(1.0, 0.7),
    }
    (bench.path / "results").mkdir()
    rows = script.report(cells, bench.path / "results").splitlines()[2:5]
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| descriptors alone", "1", "**1.2**"],
        ["| ExLM, then descriptors", "1", "1.8"],
        ["| ExLM alone", "1", "3.0"],
    ]


def test_a_recipe_is_fine_tuned_as_finetune_does(bench, monkeypatch):
    asked = {}

    def finetune(dataset, directory, encoder, **settings):
        asked.update(dataset=dataset, encoder=encoder, **settings)
        return SimpleNamespace(report={"metrics": {"valid": {"summary": {"rmse": {"mean": 0.25}}}}})

    monkeypatch.setattr(smilex, "finetune", finetune)
    _, (cell,) = bench.run("encoder_recipe", "--tuned", "freesolv", "--variants", "mexma", datasets=[])
    assert cell["probe"] == {"freesolv tuned": {"figure": "rmse", "valid": 0.25}}
    assert (asked["pooling"], asked["seeds"], asked["encoder"].name.partition("-")[0]) == ("cls", 1, "mexma")


def test_mirror_reads_ten_thousand_molecules_once_from_each_encoder(bench):
    trained, cells = bench.run("mirror", datasets=["freesolv"], seeds=2)
    starts = importlib.import_module("mirror").STARTS
    asked = [(call["encoder"], call["twins"], call["seed"]) for call in trained]
    assert asked == [(path, twins, seed) for seed in (0, 1) for path in starts.values() for twins in ("same", "random")]
    assert {call["epochs"] * len(MOLECULES) for call in trained} == {10_000}
    assert [cell.get("seconds") for cell in cells] == 3 * [None, None, 90.0, 91.0, 90.0, 91.0]
    assert all(set(cell["probe"]["freesolv"]) == {"figure", "valid", "test"} for cell in cells)
    table = (bench.path / "results" / "mirror.md").read_text()
    assert "| ExLM, then mirror of random SMILES | 2 |" in table
    again, _ = bench.run("mirror", datasets=["freesolv"], seeds=2)
    assert again == []
