import importlib
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

SMILES = [f"{'C' * size}{end}" for size in range(30, 45) for end in ("O", "N", "C(=O)O", "c1ccccc1", "F")]


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """The script in its quick size on a corpus of chains; `run` returns the cells."""
    script = importlib.import_module("throughput")
    script.open_mixture.cache_clear()
    importlib.import_module("moleculenet_methods").load_problem.cache_clear()
    (tmp_path / "corpus.smi").write_text("\n".join(SMILES))
    monkeypatch.setenv("SMILEX_DATA", str(tmp_path))
    monkeypatch.setenv("SMILEX_CACHE", str(tmp_path / "cache"))

    def run(*arguments):
        corpus = str(tmp_path / "corpus.smi")
        folders = ["--work-dir", tmp_path / "work", "--results", tmp_path / "results", "--peers", tmp_path / "peers"]
        script.main(
            ["--quick", "--threads", "1", "--corpus", corpus, "--load-from", corpus, *map(str, [*folders, *arguments])]
        )
        path = tmp_path / "results" / "throughput.json"
        return {cell["question"]: cell for cell in json.loads(path.read_text())["cells"]} if path.is_file() else {}

    return SimpleNamespace(run=run, path=tmp_path, script=script)


def check(cell, names, rounds=1):
    """The rows are there, with as many positive rounds as were asked for."""
    assert list(cell["rows"]) == names
    for row in cell["rows"].values():
        assert len(row["rounds"]) == rounds
        assert 0 < row["min"] <= row["median"] <= row["max"]


def test_rows_take_turns_and_the_first_round_does_not_count():
    measure = importlib.import_module("throughput_measure")
    order = []
    values = iter(range(100))

    def row(name):
        order.append(name)
        return float(next(values))

    found = measure.take_turns({"a": lambda: row("a"), "b": lambda: row("b")}, 3)
    assert "".join(order) == "baabbaab"
    assert found["a"] == {"median": 5.0, "min": 2.0, "max": 6.0, "rounds": [2.0, 5.0, 6.0]}
    assert found["b"] == {"median": 4.0, "min": 3.0, "max": 7.0, "rounds": [3.0, 4.0, 7.0]}


def test_the_corpus_is_a_mix_of_all_sources_without_repeats(tmp_path):
    corpus = importlib.import_module("throughput_corpus")
    (tmp_path / "few.smi").write_text("\n".join([SMILES[-1], "CCO", "C1CC", SMILES[-1], SMILES[-2]]))
    (tmp_path / "many.smi").write_text("\n".join(SMILES))
    sources = [str(tmp_path / "few.smi"), str(tmp_path / "many.smi")]
    mixture = corpus.mix(sources, 10, tmp_path)
    assert mixture.about["sources"] == {"few.smi": 2, "many.smi": 8}
    assert len(set(mixture.smiles)) == mixture.about["molecules"] == 10
    assert set(SMILES[-2:]) <= set(mixture.smiles)
    assert mixture.path.read_text().split() == mixture.smiles
    tokens = mixture.about["tokens"]
    assert 30 <= tokens["min"] <= tokens["p50"] <= tokens["max"] <= 150
    assert corpus.mix(sources, 10, tmp_path) == mixture


@pytest.mark.parametrize("training", [False, True])
def test_operations_are_counted_as_by_hand(training):
    """A linear layer and the attention of the CPU, which torch's own counter leaves out."""
    counted = importlib.import_module("throughput_training").floating_point_operations
    batch, heads, length, width = 2, 3, 5, 8
    x = torch.randn(batch, heads, length, width, requires_grad=training)

    def run():
        out = torch.nn.functional.scaled_dot_product_attention(x, x, x)
        if training:
            out.sum().backward()

    product = 2 * batch * heads * length * length * width
    assert (
        counted(run) == (7 if training else 2) * product
    )  # backward: the scores anew, and two for each of two products


def test_a_roberta_is_of_the_size_of_the_encoder():
    from transformers import RobertaForMaskedLM

    from smilex.modeling import ExLMConfig, ExLMForMaskedLM

    config = ExLMConfig.from_preset("small", num_states=1)
    training = importlib.import_module("throughput_training")
    roberta = RobertaForMaskedLM(training.roberta_config(config))
    positions = roberta.roberta.embeddings.position_embeddings.weight.numel()
    ours = sum(p.numel() for p in ExLMForMaskedLM(config).parameters())
    assert sum(p.numel() for p in roberta.parameters()) - positions == pytest.approx(ours, rel=0.01)
    length = config.max_position_embeddings
    assert roberta(torch.full((1, length), 20)).logits.shape == (1, length, config.vocab_size)


def test_limit_and_tokenizer(bench, capsys):
    cells = bench.run("--only", "limit", "tokenizer")
    check(cells["limit"], ["limit fp32", "limit bf16"])
    assert "tokenizer without peers" in capsys.readouterr().out
    check(cells["tokenizer"], ["smilex, one by one", "smilex, batch"])
    assert 30 <= cells["tokenizer"]["tokens_per_molecule"]["smilex"] <= 60
    assert cells["tokenizer"]["settings"]["threads"] == 1
    assert cells["tokenizer"]["molecules"]["sources"] == {"corpus.smi": len(SMILES)}
    assert "## Tokenizer, 1 thread (molecules/s)" in (bench.path / "results" / "throughput.md").read_text()


def test_finished_cells_are_not_run_again(bench, monkeypatch):
    before = bench.run("--only", "limit")
    monkeypatch.setattr(bench.script, "take_turns", lambda *_: pytest.fail("measured again"))
    assert bench.run("--only", "limit") == before


def test_step_and_alignment(bench):
    threads = torch.get_num_threads()
    cells = bench.run("--only", "step", "alignment")
    assert torch.get_num_threads() == threads
    step = cells["step"]
    names = ["ExLM", "MLM", "RoBERTa as used", "RoBERTa our batches"]
    check(step, [f"{name} {precision}" for precision in ("fp32", "bf16") for name in names])
    for row in step["rows"].values():
        assert row["gflops"] > 0
        assert row["limit_share"] > 0
    per_molecule = {name: row["gflops"] / row["median"] for name, row in step["rows"].items()}
    assert per_molecule["ExLM fp32"] > per_molecule["MLM fp32"]
    assert per_molecule["MLM bf16"] == pytest.approx(per_molecule["MLM fp32"])
    check(
        cells["alignment"],
        ["dynamic programme, a batch", "dynamic programme, one by one", "whole training step"],
    )
    assert cells["alignment"]["rows"]["whole training step"]["step_share"] == 1


@pytest.mark.slow
def test_embedding(bench):
    cell = bench.run("--only", "embedding")["embedding"]
    workers = importlib.import_module("throughput_embedding_worker")
    check(cell, list(workers.WAYS))
    for row in cell["rows"].values():
        assert row["peak_rss_mb"] > 50


def test_the_ways_to_embed_give_the_same_vectors(tmp_path):
    from smilex.modeling import ExLMConfig, ExLMModel
    from smilex.runs import save_model
    from smilex.tokenization import SmilesTokenizer

    workers = importlib.import_module("throughput_embedding_worker")
    save_model(ExLMModel(ExLMConfig.from_preset("tiny")), SmilesTokenizer(), tmp_path)
    vectors = {way: make(str(tmp_path), SMILES)(SMILES) for way, make in workers.WAYS.items()}
    for way in ("plain transformers loop", "the encoder's forward alone"):
        np.testing.assert_allclose(vectors[way], vectors["smilex.embed"], atol=1e-5)
    assert vectors["RoBERTa, DeepChem's way"].shape == vectors["smilex.embed"].shape


def test_corpus(bench):
    cell = bench.run("--only", "corpus")["corpus"]
    check(cell, ["clean and tokenise, one core", "load 50 of corpus.smi", "load 75 of corpus.smi"])


def test_finetuning(bench, capsys):
    assert bench.run("--only", "finetuning") == {}
    assert "without finetuning: " in capsys.readouterr().out
    pytest.importorskip("chemprop")
    smiles = ["C" * size for size in range(1, 31)] + [f"C1{'C' * size}1" for size in range(2, 12)]
    pd.DataFrame({"smiles": smiles, "p_np": np.arange(len(smiles)) % 2}).to_csv(bench.path / "bbbp.csv", index=False)
    cell = bench.run("--only", "finetuning")["finetuning"]
    check(cell, ["smilex tiny fp32", "smilex tiny bf16", "chemprop"])
    assert cell["parts"] == {"train": 32, "valid": 4, "test": 4, "left_out": 0}
