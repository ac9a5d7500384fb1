import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from rdkit import Chem, RDConfig
from typer.testing import CliRunner

from smilex import DEFAULT_ENCODER, demo
from smilex.cli import app
from smilex.data.properties import load_properties
from smilex.data.splits import split
from smilex.metrics import evaluate, summarize
from smilex.modeling.loading import find_encoder, load_config, starting_config

PREDICTORS = [
    "mean of the training labels",
    "ECFP4 + random forest",
    "ExLM from scratch",
    "smilex-small fine-tuned",
    "smilex-small + linear model",
    "smilex-small + random forest",
]
DIRECTORIES = dict(zip(PREDICTORS[2:], ("from-scratch", "fine-tuned", "frozen-linear", "frozen-forest"), strict=True))


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


def check_figures(results, output, directories):
    """The table shows the figures of the runs, and those are the figures of the predictions that lie there."""
    for predictor, parts in results.items():
        shown = [parts["valid"]["rmse"], parts["test"]["rmse"], parts["test"]["r2"]]
        numbers = [value for figure in shown for value in (figure["mean"], figure["sd"])]
        assert row_of(output, predictor) == pytest.approx([v for v in numbers if v is not None], abs=6e-4)
    for predictor, directory in directories.items():
        metrics = json.loads(Path("tour", directory, "metrics.json").read_text())
        assert {part: metrics[part]["summary"] for part in ("valid", "test")} == results[predictor]


def test_tour(small_budget):
    result = CliRunner().invoke(app, ["demo", "tour"])
    assert result.exit_code == 0, result.output
    results = json.loads(Path("tour/results.json").read_text())
    assert list(results) == PREDICTORS
    check_figures(results, result.stdout, DIRECTORIES)
    seeds = {predictor: parts["test"]["rmse"]["n"] for predictor, parts in results.items()}
    assert seeds == dict.fromkeys(PREDICTORS, 2) | {PREDICTORS[0]: 1, PREDICTORS[4]: 1}  # those two hold no chance
    changes = re.search(r"by ([+-][\d.]+) on the validation and ([+-][\d.]+) on the test part", result.stdout).groups()
    for part, change in zip(("valid", "test"), changes, strict=True):
        scratch, tuned = (results[PREDICTORS[index]][part]["rmse"]["mean"] for index in (2, 3))
        assert float(change) == pytest.approx(tuned - scratch, abs=6e-4)

    # The baselines see the molecules that the networks see.
    table = pd.read_csv("tour/fine-tuned/predictions.csv")
    data = load_properties(demo.DATASET)
    for name, rows in split(data.smiles, "scaffold").parts().items():
        assert list(table.index[table["part"] == name]) == list(rows)
    train = table[table["part"] == "train"]["pIC50_measured"].mean()
    for part in ("valid", "test"):
        truth = table[table["part"] == part]["pIC50_measured"].to_numpy()[:, None]
        mean = evaluate("regression", truth, [[train]] * len(truth), ["pIC50"])["mean"]
        assert results[PREDICTORS[0]][part]["rmse"]["mean"] == pytest.approx(summarize([mean])["rmse"]["mean"])

    for directory in ("from-scratch", "fine-tuned"):
        assert f"tour/{directory}/parity.png" in result.stdout
        assert Path("tour", directory, "parity.png").stat().st_size > 0
    assert re.findall(r"^\d/\d", result.stderr, re.MULTILINE) == ["1/4", "2/4", "3/4", "4/4"]
    assert len(re.findall(r"done in \d+ s", result.stderr)) == 4
    assert not Path("tour/pretrained").exists()


def test_the_tour_with_pretraining(small_budget):
    result = CliRunner().invoke(app, ["demo", "tour", "--pretrain"])
    assert result.exit_code == 0, result.output
    results = json.loads(Path("tour/results.json").read_text())
    assert list(results) == [*PREDICTORS, "ExLM pretrained here"]
    check_figures(results, result.stdout, DIRECTORIES | {list(results)[-1]: "pretrained-fine-tuned"})
    completions = re.findall(r"^\s+(CC\(=O\)Oc1ccccc1C\(=O\)\S+)\s+0\.\d+", result.stdout, re.MULTILINE)
    assert completions
    assert all(Chem.MolFromSmiles(smiles) is not None for smiles in completions)
    assert "tour/pretrained/loss.png" in result.stdout
    assert re.findall(r"^\d/\d", result.stderr, re.MULTILINE) == [f"{number}/7" for number in range(1, 8)]


def test_from_scratch_means_the_size_of_the_encoder_of_the_package():
    shipped = load_config(find_encoder(DEFAULT_ENCODER)).own_fields()
    assert starting_config(None, demo.MODEL).own_fields() == shipped


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
    results = json.loads((tmp_path / "tour/results.json").read_text())
    mean, forest, scratch, tuned, *_ = (results[predictor]["test"]["rmse"]["mean"] for predictor in PREDICTORS)
    assert forest < mean
    assert max(scratch, tuned) < 1.5 * mean  # so short a training need not beat anything
    assert len(done.stderr.splitlines()) == 8
