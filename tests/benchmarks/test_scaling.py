import json
import math
from dataclasses import replace

import pytest

pytest.importorskip("simpy")


@pytest.fixture
def scaling():
    import scaling

    return scaling


@pytest.fixture
def rates(scaling):
    return scaling.Rates(
        cleaned=1000.0,
        encoded=2000.0,
        batched=8000.0,
        trained=50.0,
        embedded=500.0,
        training_gflop=2.0,
        forward_gflop=0.5,
        molecules_per_batch=1000.0,
        gradient_bytes=2e7,
        corpus_bytes=100.0,
        vector_bytes=1000.0,
    )


def test_cores_share_their_time_among_what_they_do(scaling, rates):
    machine = scaling.Machine(cores=4, disk=1.0)
    assert scaling.clean(rates, machine) == {"cores": 4000, "disk": 1e7}
    assert scaling.embed(rates, machine) == {"cores": pytest.approx(4 / (1 / 2000 + 1 / 500)), "disk": 1e6}
    assert scaling.pretrain(rates, machine) == {"cores": pytest.approx(4 / (1 / 8000 + 1 / 50))}


def test_gpus_compute_and_exchange_gradients(scaling, rates, monkeypatch):
    monkeypatch.setattr(scaling, "SUSTAINED_TFLOPS", 100.0)
    alone = scaling.Machine(cores=16, gpus=1)
    assert scaling.pretrain(rates, alone) == {"cores": 16 * 8000, "GPUs": pytest.approx(100e3 / 2)}
    assert scaling.embed(rates, alone)["GPUs"] == pytest.approx(100e3 / 0.5)
    # A step of 20 ms, and 1.5 times the gradients at 1 GB/s: 30 ms.
    four = replace(alone, gpus=2, nodes=2, network=1.0)
    assert scaling.pretrain(rates, four)["GPUs"] == pytest.approx(4 * 1000 / 0.05)
    assert scaling.embed(rates, four) == {"cores": 64000, "GPUs": 800_000, "disk": 4e6}


def test_one_node_cleans(scaling, rates):
    one, many = scaling.Machine(cores=8), scaling.Machine(cores=8, nodes=4)
    assert scaling.clean(rates, many) == scaling.clean(rates, one)
    assert scaling.workers("clean", many) == scaling.workers("clean", one)
    assert scaling.workers("embed", many) == {"cores": 32, "GPUs": 0, "disk": 4}


def test_batches_pass_at_the_rate_of_the_slowest_part(scaling):
    shares = {"cores": 8, "GPUs": 2, "disk": 1}
    for slowest in shares:
        parts = {name: 1000.0 if name == slowest else 10_000.0 for name in shares}
        assert scaling.simulate(parts, shares, 10, 4000) == pytest.approx(1000, rel=0.05)
    # Of two parts alike with b places between them, each waits for the other: (b + 2) / (b + 3) of their rate is left.
    alike = scaling.simulate({"cores": 1000.0, "GPUs": 1000.0}, {"cores": 1, "GPUs": 1}, 10, 20_000)
    assert alike == pytest.approx(1000 * (scaling.QUEUE + 2) / (scaling.QUEUE + 3), rel=0.02)
    one = scaling.simulate({"cores": 1000.0}, shares, 10, 500, seed=1)
    assert one == scaling.simulate({"cores": 1000.0}, shares, 10, 500, seed=1)
    assert one != scaling.simulate({"cores": 1000.0}, shares, 10, 500, seed=2)


def test_durations_are_in_units_that_suit_them(scaling):
    hours = [0.5, 30, 72, 24 * 365.25 * 3]
    assert [scaling.duration(value) for value in hours] == ["30 minutes", "30 hours", "3 days", "3 years"]


def test_the_script_measures_calculates_and_writes(scaling, tmp_path, capsys):
    rows = {
        "corpus": {"clean and tokenise, one core": {"median": 1500.0}},
        "step": {"ExLM fp32": {"median": 40.0}},
        "embedding": {"the encoder's forward alone": {"median": 200.0}},
    }
    cells = [
        {"question": question, "threads": threads, "rows": rows[question]} for threads in (1,) for question in rows
    ]
    source = tmp_path / "throughput.json"
    source.write_text(json.dumps({"cells": [*cells, {"question": "step", "threads": 2, "rows": {}}]}))
    scaling.main(["--throughput", str(source), "--molecules", "20", "--batches", "2", "--results", str(tmp_path)])
    found = json.loads((tmp_path / "scaling.json").read_text())
    rates = found["rates"]
    assert (rates["cleaned"], rates["trained"], rates["embedded"]) == (1500, 40, 200)
    assert all(math.isfinite(rate) and rate > 0 for rate in rates.values())
    # Forward and backward of three times the operations, on more places than there are tokens.
    assert rates["training_gflop"] > 3 * rates["forward_gflop"]
    assert rates["vector_bytes"] == 4 * 256
    assert {(row["task"], row["machine"]) for row in found["rows"]} == {
        (task, machine) for task in scaling.TASKS for machine in scaling.MACHINES
    }
    text = (tmp_path / "scaling.md").read_text()
    assert capsys.readouterr().out.strip() == text.strip()
    assert "| clean | 2 cores | 3,000 | cores |" in text
