import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from rdkit import Chem, RDConfig
from typer.testing import CliRunner

from smilex import demo
from smilex.cli import app
from smilex.data.properties import load_properties
from smilex.data.splits import split
from smilex.metrics import evaluate, summarize

PREDICTORS = ["mean of the training labels", "ECFP4 + random forest", "ExLM from scratch", "ExLM pretrained"]


@pytest.fixture
def small_budget(tmp_path, monkeypatch):
    """The tour on few molecules: what it does stays, what it costs shrinks."""
    lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()
    (tmp_path / "corpus.smi").write_text("\n".join(lines[:40]))
    data = load_properties("nav17")
    pd.DataFrame({"smiles": data.smiles, "pIC50": data.targets[:, 0]})[::12].to_csv(tmp_path / "few.csv", index=False)
    monkeypatch.setenv("SMILEX_CACHE", str(tmp_path / "cache"))
    for name, value in {
        "CORPUS": str(tmp_path / "corpus.smi"),
        "DATASET": str(tmp_path / "few.csv"),
        "PRETRAINING_EPOCHS": 1,
        "FINETUNING_EPOCHS": 1,
        "SEEDS": 2,
        "TREES": 5,
    }.items():
        monkeypatch.setattr(demo, name, value)
    monkeypatch.chdir(tmp_path)


def row_of(output, predictor):
    """Figures in the row of a predictor."""
    (line,) = [line for line in output.splitlines() if line.strip().startswith(predictor)]
    return [float(number) for number in re.findall(r"-?\d+\.\d+", line)]


def test_tour(small_budget):
    result = CliRunner().invoke(app, ["demo", "tour"])
    assert result.exit_code == 0, result.output
    results = json.loads(Path("tour/results.json").read_text())
    assert list(results) == PREDICTORS

    # The table shows the figures of the runs, and those are the figures of the predictions that lie there.
    for predictor, figures in results.items():
        shown = [value for name in ("rmse", "r2") for value in (figures[name]["mean"], figures[name]["sd"])]
        assert row_of(result.stdout, predictor) == pytest.approx([v for v in shown if v is not None], abs=6e-4)
    for directory, predictor in (("from-scratch", PREDICTORS[2]), ("fine-tuned", PREDICTORS[3])):
        metrics = json.loads(Path("tour", directory, "metrics.json").read_text())
        assert metrics["test"]["summary"] == results[predictor]
    assert results[PREDICTORS[0]]["rmse"]["sd"] is None
    assert all(results[predictor]["rmse"]["n"] == 2 for predictor in PREDICTORS[1:])

    # The baselines see the molecules that the networks see.
    table = pd.read_csv("tour/fine-tuned/predictions.csv")
    data = load_properties(demo.DATASET)
    for name, rows in split(data.smiles, "scaffold").parts().items():
        assert list(table.index[table["part"] == name]) == list(rows)
    train, test = (table[table["part"] == part]["pIC50_measured"] for part in ("train", "test"))
    mean = evaluate("regression", test.to_numpy()[:, None], [[train.mean()]] * len(test), ["pIC50"])["mean"]
    assert results[PREDICTORS[0]]["rmse"]["mean"] == pytest.approx(summarize([mean])["rmse"]["mean"])

    completions = re.findall(r"^\s+(CC\(=O\)Oc1ccccc1C\(=O\)\S+)\s+0\.\d+", result.stdout, re.MULTILINE)
    assert completions
    assert all(Chem.MolFromSmiles(smiles) is not None for smiles in completions)
    for plot in ("pretrained/loss.png", "from-scratch/parity.png", "fine-tuned/parity.png"):
        assert f"tour/{plot}" in result.stdout
        assert Path("tour", plot).stat().st_size > 0
    assert re.findall(r"^\d/\d", result.stderr, re.MULTILINE) == ["1/5", "2/5", "3/5", "4/5", "5/5"]
    assert len(re.findall(r"done in \d+ s", result.stderr)) == 5


def test_a_second_tour_takes_the_next_free_directory(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert demo._new_directory(Path("tour")) == Path("tour")
    Path("tour").mkdir()
    Path("tour-2").touch()
    assert demo._new_directory(Path("tour")) == Path("tour-3")
    assert capsys.readouterr().err == "tour exists: writing to tour-3\n"


def test_a_place_that_cannot_be_written_is_one_line(small_budget):
    Path("file").touch()
    result = CliRunner().invoke(app, ["demo", "file/tour"])
    assert result.exit_code == 1
    assert "error: cannot write to file/tour" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.output


@pytest.mark.slow
def test_the_real_tour(tmp_path):
    command = [sys.executable, "-m", "smilex", "demo", "tour"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    mean, forest, scratch, pretrained = (row_of(done.stdout, predictor) for predictor in PREDICTORS)
    assert forest[0] < mean[0]
    assert max(scratch[0], pretrained[0]) < 1.5 * mean[0]  # so short a training need not beat anything
    assert len(done.stderr.splitlines()) == 10
