import json
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem
from safetensors.torch import load_file
from scipy.stats import spearmanr
from sklearn import metrics as sk

import smilex
from smilex import finetune, predict
from smilex.chem import enumerate_smiles
from smilex.data.rows import InvalidMoleculeWarning
from smilex.data.splits import split

RINGS = ["C1CC1", "c1ccccc1", "c1ccncc1", "C1CCNCC1", "c1ccsc1", "C1CCOC1", "C1CCCCC1", "N", "O"]
MOLECULES = [Chem.CanonSmiles("C" * length + ring) for ring in RINGS for length in range(1, 10)]
CARBONS = np.array([text.upper().count("C") for text in MOLECULES], dtype=float)
NITROGEN = np.array([float("N" in text.upper()) for text in MOLECULES])
RING = np.array([float("1" in text) for text in MOLECULES])
QUICK = {"split": "random", "seeds": 1, "epochs": 2, "learning_rate": 2e-3, "progress": False}


def carbons(**changes):
    return pd.DataFrame({"smiles": MOLECULES, "carbons": CARBONS, **changes})


def messy():
    """Numbers of carbons with a missing label, an invalid row, one that is too long, and a molecule twice."""
    table = carbons()
    table.loc[5, "carbons"] = np.nan
    extra = [("C1CC", 3.0), ("C" * 60, 60.0), (enumerate_smiles(MOLECULES[20], 1, seed=3)[0], CARBONS[20])]
    extra = pd.DataFrame(extra, columns=["smiles", "carbons"])
    return pd.concat([table[:10], extra, table[10:]], ignore_index=True)


@pytest.fixture(scope="module")
def regression(encoder, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "regression"
    settings = {"split": "random", "seeds": 2, "epochs": 30, "learning_rate": 5e-3, "progress": False}
    with pytest.warns(InvalidMoleculeWarning) as caught:
        result = finetune(messy(), directory, encoder, **settings)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    return result


@pytest.fixture(scope="module")
def classification(encoder, tmp_path_factory):
    table = pd.DataFrame({"smiles": MOLECULES, "has N": NITROGEN, "ring": RING})
    table.loc[::7, "has N"] = np.nan
    table.loc[3::5, "ring"] = np.nan
    directory = tmp_path_factory.mktemp("runs") / "classification"
    settings = {"split": "random", "seeds": 1, "epochs": 25, "learning_rate": 5e-3, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return finetune(table, directory, encoder, **settings)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def log_of(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def saved_table(result):
    return pd.read_csv(result.output_dir / "predictions.csv", keep_default_na=False, na_values={"": ["nan"]})


def part_of(table, name):
    return table[(table["part"] == name) & table.filter(like="_measured").notna().any(axis=1)]


def test_regression_learns_what_a_molecule_decides(regression):
    table = regression.predictions
    test, mean = part_of(table, "test"), part_of(table, "train")["carbons_measured"].mean()
    blind = sk.root_mean_squared_error(test["carbons_measured"], np.full(len(test), mean))
    assert regression.metrics["rmse"]["mean"] < 0.5 * blind
    assert regression.metrics["r2"]["mean"] > 0.7


def test_classification_learns_what_a_molecule_decides(classification):
    assert classification.metrics["roc_auc"]["mean"] > 0.9
    tasks = classification.report["metrics"]["test"]["seeds"][0]["tasks"]
    assert set(tasks) == {"has N", "ring"}


def test_rows_are_those_of_the_dataset_in_order(regression):
    data, table = messy(), regression.predictions
    assert table["smiles"].tolist() == data["smiles"].tolist()
    np.testing.assert_array_equal(table["carbons_measured"], data["carbons"])
    columns = ["smiles", "part", "carbons_measured", "carbons", "carbons_sd", "error"]
    assert list(table.columns) == columns


def test_invalid_rows_are_nan_in_no_part_and_reported(regression):
    table = regression.predictions
    bad = table["error"] != ""
    assert np.flatnonzero(bad).tolist() == [10, 11]
    assert (table["part"][bad] == "").all()
    assert table[["carbons", "carbons_sd"]][bad].isna().to_numpy().all()
    assert table[["carbons", "carbons_sd"]][~bad].notna().to_numpy().all()
    assert set(table["part"][~bad]) == {"train", "valid", "test"}
    rows = read(regression.output_dir / "report.json")["rows"]
    assert [(row["index"], row["smiles"]) for row in rows["invalid"]] == [(10, "C1CC"), (11, "C" * 60)]
    assert "ring" in rows["invalid"][0]["reason"]
    assert "the limit is 40" in rows["invalid"][1]["reason"]
    assert rows["total"] == len(table)
    assert {name: rows[name] for name in ("train", "valid", "test")} == table["part"][~bad].value_counts().to_dict()


def test_duplicates_are_counted_and_leaks_named(regression):
    rows = regression.report["rows"]
    homes = {regression.predictions["part"][12], regression.predictions["part"][23]}
    assert rows["duplicates"] == 1
    assert sum(rows["molecules_in_two_parts"].values()) == (len(homes) == 2)


def test_the_table_on_disk_is_the_result_and_what_predict_says(regression, classification):
    for result in (regression, classification):
        table = saved_table(result)
        assert table["error"].tolist() == result.predictions["error"].tolist()
        assert table["part"].tolist() == result.predictions["part"].tolist()
        numbers = result.predictions.select_dtypes("number").columns
        on_disk = table[numbers].apply(pd.to_numeric)
        np.testing.assert_allclose(on_disk, result.predictions[numbers], rtol=1e-6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InvalidMoleculeWarning)
            predicted = predict(result.output_dir, result.predictions["smiles"])
        shared = predicted.columns.drop(["smiles", "error"])
        np.testing.assert_allclose(predicted[shared], result.predictions[shared], atol=1e-5, rtol=1e-5)
        assert predicted["error"].tolist() == result.predictions["error"].tolist()


def test_figures_of_regression_are_those_of_sklearn(regression):
    table = saved_table(regression)
    figures = read(regression.output_dir / "metrics.json")
    for name in ("valid", "test"):
        part = part_of(table.assign(carbons_measured=pd.to_numeric(table["carbons_measured"])), name)
        true, ensemble = part["carbons_measured"], pd.to_numeric(part["carbons"])
        single = [
            predict(regression.output_dir / f"seed-{seed}", part["smiles"])["carbons"].to_numpy() for seed in range(2)
        ]
        assert figures[name]["ensemble"]["mean"]["rmse"] == pytest.approx(
            sk.root_mean_squared_error(true, ensemble), abs=1e-5
        )
        rmse = [sk.root_mean_squared_error(true, values) for values in single]
        summary = figures[name]["summary"]
        assert summary["rmse"] == {
            "mean": pytest.approx(np.mean(rmse), abs=1e-5),
            "sd": pytest.approx(np.std(rmse, ddof=1), abs=1e-5),
            "n": 2,
        }
        for metric, function in (("mae", sk.mean_absolute_error), ("r2", sk.r2_score), ("spearman", spearmanr)):
            values = [function(true, values) for values in single]
            values = [value.statistic if metric == "spearman" else value for value in values]
            assert summary[metric]["mean"] == pytest.approx(np.mean(values), abs=1e-5)
    assert figures["test"]["summary"] == regression.metrics


def test_figures_of_classification_are_those_of_sklearn(classification):
    table = classification.predictions
    figures = read(classification.output_dir / "metrics.json")["test"]
    test = part_of(table, "test")
    auc = {}
    for task in ("has N", "ring"):
        known = test[test[f"{task}_measured"].notna()]
        auc[task] = sk.roc_auc_score(known[f"{task}_measured"], known[task])
        assert figures["seeds"][0]["tasks"][task]["roc_auc"] == pytest.approx(auc[task], abs=1e-6)
        called = known[task] >= 0.5
        accuracy = sk.accuracy_score(known[f"{task}_measured"], called)
        assert figures["seeds"][0]["tasks"][task]["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    assert figures["summary"]["roc_auc"]["mean"] == pytest.approx(np.mean(list(auc.values())), abs=1e-6)
    assert table[["has N", "ring"]].to_numpy().min() >= 0
    assert table[["has N", "ring"]].to_numpy().max() <= 1


def test_one_seed_has_no_spread(classification):
    assert not [column for column in classification.predictions.columns if column.endswith("_sd")]
    assert classification.metrics["roc_auc"]["sd"] is None
    assert [path.name for path in classification.output_dir.glob("seed-*")] == ["seed-0"]


def test_the_saved_weights_are_those_of_the_best_pass(regression, classification):
    table = regression.predictions
    valid, train = part_of(table, "valid"), part_of(table, "train")
    for seed in range(2):
        directory = regression.output_dir / f"seed-{seed}"
        predicted = predict(directory, valid["smiles"])["carbons"].to_numpy()
        loss = np.mean((predicted - valid["carbons_measured"]) ** 2) / train["carbons_measured"].var(ddof=0)
        logged = [row["eval_loss"] for row in log_of(directory) if "eval_loss" in row]
        assert loss == pytest.approx(min(logged), rel=1e-4)
        assert max(logged) > 1.1 * min(logged)
    best = max(row["eval_roc_auc"] for row in log_of(classification.output_dir / "seed-0") if "eval_roc_auc" in row)
    figures = classification.report["metrics"]["valid"]["summary"]
    assert figures["roc_auc"]["mean"] == pytest.approx(best, abs=1e-6)


def test_training_stops_without_progress(encoder, tmp_path):
    """Labels without rhyme or reason: the validation part soon gets no better."""
    noise = np.random.default_rng(0).normal(size=len(MOLECULES))
    table = pd.DataFrame({"smiles": MOLECULES, "noise": noise})
    finetune(table, tmp_path, encoder, **QUICK | {"epochs": 200, "patience": 3, "learning_rate": 5e-3})
    losses = [row["eval_loss"] for row in log_of(tmp_path / "seed-0") if "eval_loss" in row]
    assert len(losses) == int(np.argmin(losses)) + 1 + 3


def test_a_run_directory_holds_what_it_should_and_nothing_else(regression, classification):
    shared = {"settings.json", "report.json", "metrics.json", "predictions.csv"}
    assert {path.name for path in regression.output_dir.iterdir()} == shared | {"seed-0", "seed-1", "parity.png"}
    assert {path.name for path in classification.output_dir.iterdir()} == shared | {"seed-0", "roc.png"}
    files = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "metrics.jsonl"}
    assert {path.name for path in (regression.output_dir / "seed-1").iterdir()} == files
    report = read(regression.output_dir / "report.json")
    assert report == json.loads(json.dumps(regression.report))
    assert report["versions"]["torch"] == torch.__version__
    assert report["settings"]["seeds"] == 2


def test_the_saved_configuration_is_of_this_version_and_names_the_tasks(classification):
    config = read(classification.output_dir / "seed-0" / "config.json")
    assert config["smilex_version"] == smilex.__version__
    assert config["id2label"] == {"0": "has N", "1": "ring"}
    assert config["problem_type"] == "multi_label_classification"


def test_the_scaffold_split_is_the_default(encoder, tmp_path):
    settings = {name: value for name, value in QUICK.items() if name != "split"}
    table = finetune(carbons(), tmp_path, encoder, **settings).predictions
    for name, rows in split(MOLECULES, "scaffold").parts().items():
        assert np.flatnonzero(table["part"] == name).tolist() == rows.tolist()


def test_the_same_call_gives_the_same_files(encoder, tmp_path):
    for number, name in enumerate(("a", "b")):
        np.random.seed(number)  # noqa: NPY002 (what a user's own code may do to the global state)
        torch.manual_seed(number)
        finetune(carbons(), tmp_path / name, encoder, **QUICK | {"seeds": 2})
    for file in ("predictions.csv", "metrics.json", "report.json", "seed-1/metrics.jsonl", "seed-1/model.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file
    tables = [predict(tmp_path / "a" / f"seed-{seed}", MOLECULES)["carbons"] for seed in range(2)]
    assert np.abs(tables[0] - tables[1]).max() > 1e-3


def test_predictions_are_in_the_units_of_the_targets(encoder, tmp_path):
    settings = QUICK | {"epochs": 15, "learning_rate": 5e-3}
    plain = finetune(carbons(), tmp_path / "plain", encoder, **settings).predictions["carbons"]
    assert plain.std() > 0.5
    for name, factor, shift in [("scaled", 1000, 0), ("shifted", 1, 30_000), ("tiny", 1e-9, 0), ("both", 1e6, -1e9)]:
        table = carbons(carbons=factor * CARBONS + shift)
        moved = finetune(table, tmp_path / name, encoder, **settings).predictions["carbons"].astype(float)
        np.testing.assert_allclose((moved - shift) / factor, plain, atol=0.05, err_msg=name)


def test_the_encoder_is_where_training_starts(encoder, tmp_path):
    finetune(carbons(), tmp_path, encoder, **QUICK | {"epochs": 1, "learning_rate": 1e-12, "seeds": 2})
    start = load_file(encoder / "model.safetensors")
    heads = []
    for seed in range(2):
        weights = load_file(tmp_path / f"seed-{seed}" / "model.safetensors")
        for name in (name for name in weights if name.startswith("exlm.")):
            torch.testing.assert_close(weights[name], start[name], atol=1e-7, rtol=0)
        heads.append(weights["dense.weight"])
    assert (heads[0] - heads[1]).abs().max() > 1e-3


def test_a_fine_tuned_model_gives_its_encoder_and_not_its_head(classification, tmp_path):
    source = classification.output_dir / "seed-0"
    table = pd.DataFrame({"smiles": MOLECULES, "a": CARBONS, "b": CARBONS**2 + 0.5})
    finetune(table, tmp_path, source, **QUICK | {"epochs": 1, "learning_rate": 1e-12})
    start, weights = (load_file(path / "model.safetensors") for path in (source, tmp_path / "seed-0"))
    torch.testing.assert_close(
        weights["exlm.layers.0.attention.qkv.weight"], start["exlm.layers.0.attention.qkv.weight"]
    )
    assert (weights["dense.weight"] - start["dense.weight"]).abs().max() > 1e-3


def test_from_scratch(tmp_path):
    settings = QUICK | {"epochs": 1}
    result = finetune(carbons()[:30], tmp_path, None, model="tiny", **settings)
    assert result.predictions["carbons"].notna().all()
    assert read(tmp_path / "seed-0" / "config.json")["hidden_size"] == 128


def test_pooling_is_kept_in_the_model(regression, encoder, tmp_path):
    assert read(regression.output_dir / "seed-0" / "config.json")["pooling"] == "mean"
    result = finetune(carbons(), tmp_path, encoder, pooling="cls", **QUICK)
    assert read(tmp_path / "seed-0" / "config.json")["pooling"] == "cls"
    predicted = predict(tmp_path, MOLECULES)["carbons"]
    np.testing.assert_allclose(predicted, result.predictions["carbons"], atol=1e-5)


def test_the_table_of_the_user_is_not_changed(encoder, tmp_path):
    table = messy()
    table.index = table.index[::-1]
    before = table.copy(deep=True)
    with pytest.warns(InvalidMoleculeWarning):
        result = finetune(table, tmp_path, encoder, **QUICK)
    pd.testing.assert_frame_equal(table, before)
    assert result.predictions["smiles"].tolist() == table["smiles"].tolist()


def test_a_table_in_a_file(encoder, tmp_path):
    carbons().to_csv(tmp_path / "table.csv.gz", index=False)
    result = finetune(tmp_path / "table.csv.gz", tmp_path / "run", encoder, **QUICK)
    np.testing.assert_array_equal(result.predictions["carbons_measured"], CARBONS)
    assert result.report["settings"]["dataset"]["name"] == "table"


def test_nothing_is_printed(encoder, tmp_path, capfd):
    finetune(carbons(), tmp_path, encoder, **QUICK)
    assert capfd.readouterr() == ("", "")


SCRIPT = """
import sys, pandas
from smilex import finetune, predict
table = pandas.read_csv(sys.argv[1])
finetune(table, sys.argv[3], sys.argv[2], split="random", seeds=1, epochs=2)
predict(sys.argv[3], table["smiles"])
"""


@pytest.mark.slow
def test_a_fresh_process_prints_nothing_but_the_bar(encoder, tmp_path):
    carbons().to_csv(tmp_path / "table.csv", index=False)
    command = [sys.executable, "-c", SCRIPT, tmp_path / "table.csv", encoder, tmp_path / "run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert lines
    assert all("seed 0" in line for line in lines)
