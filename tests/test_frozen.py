import json
import pickle
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score, root_mean_squared_error
from sklearn.preprocessing import StandardScaler

from smilex import SmilesTokenizer, embed, finetune, predict
from smilex.data.rows import InvalidMoleculeWarning
from smilex.errors import SmilexError
from smilex.frozen import HEAD_FILE, HEAD_REPORT, settings_in_use
from smilex.inspection import inspect
from smilex.modeling import ExLMConfig, ExLMForMaskedLM
from smilex.modeling.loading import quiet_transformers
from smilex.property_task import positive_weights
from smilex.recipe import Recipe

RINGS = ["C1CC1", "c1ccccc1", "c1ccncc1", "C1CCNCC1", "c1ccsc1", "C1CCOC1", "C1CCCCC1", "N", "O"]
MOLECULES = ["C" * length + ring for ring in RINGS for length in range(1, 10)]
CARBONS = np.array([text.upper().count("C") for text in MOLECULES], dtype=float)
NITROGEN = np.array([float("N" in text.upper()) for text in MOLECULES])
HEADS = ("linear", "random_forest")
SETTINGS = {"split": "random", "progress": False}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("encoder")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = ExLMConfig(**sizes, vocab_size=len(SmilesTokenizer()), max_position_embeddings=40, initializer_range=0.1)
    with quiet_transformers():
        ExLMForMaskedLM(config).save_pretrained(directory)
    return directory


def messy(kind):
    """Two tasks with different missing labels, and two rows that are no molecule for this encoder."""
    first, second = (CARBONS, np.sqrt(CARBONS)) if kind == "regression" else (NITROGEN, (CARBONS > 8).astype(float))
    table = pd.DataFrame({"smiles": MOLECULES, "first": first, "second": second})
    table.loc[::7, "first"] = np.nan
    table.loc[3::5, "second"] = np.nan
    extra = pd.DataFrame({"smiles": ["C1CC", "C" * 60], "first": [1.0, 1.0], "second": [0.0, 0.0]})
    return pd.concat([table[:10], extra, table[10:]], ignore_index=True)


BAD = [10, 11]
RUNS = [(head, kind) for head in HEADS for kind in ("regression", "classification")]


@pytest.fixture(scope="module")
def runs(encoder, tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("runs"), {}
    for head, kind in RUNS:
        with pytest.warns(InvalidMoleculeWarning) as caught:
            found[head, kind] = finetune(
                messy(kind), folder / f"{head}-{kind}", encoder, head=head, seeds=2, **SETTINGS
            )
        assert len(caught) == 1
        assert caught[0].filename == __file__
    return found


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def by_hand(table, task, vectors, chosen, seed):
    """One task's estimator of scikit-learn, fitted to what `smilex.embed` gives, on every molecule."""
    known = (table["part"] == "train") & table[f"{task}_measured"].notna()
    labels = table.loc[known, f"{task}_measured"]
    if chosen["estimator"].startswith("RandomForest"):
        forest = {"RandomForestRegressor": RandomForestRegressor, "RandomForestClassifier": RandomForestClassifier}
        estimator = forest[chosen["estimator"]](300, random_state=seed)
    else:
        vectors = StandardScaler().fit(vectors[known]).transform(vectors)
        estimator = Ridge(chosen["alpha"]) if "alpha" in chosen else LogisticRegression(C=chosen["C"], max_iter=2000)
    estimator.fit(vectors[known], labels)
    probabilities = hasattr(estimator, "predict_proba")
    return estimator.predict_proba(vectors)[:, 1] if probabilities else estimator.predict(vectors)


@pytest.mark.parametrize(("head", "kind"), RUNS)
def test_predictions_are_those_of_scikit_learn_on_embedded_molecules(runs, encoder, head, kind):
    result = runs[head, kind]
    table, good = result.predictions, ~np.isin(np.arange(len(result.predictions)), BAD)
    valid = table[good].reset_index(drop=True)
    vectors = embed(valid["smiles"].tolist(), encoder).astype(np.float64)
    places = sorted(result.output_dir.glob("seed-*"))
    assert len(places) == (1 if head == "linear" else 2)
    for task in ("first", "second"):
        chosen = [read(place / HEAD_REPORT)[task] for place in places]
        expected = [by_hand(valid, task, vectors, facts, seed) for seed, facts in enumerate(chosen)]
        np.testing.assert_allclose(valid[task], np.mean(expected, axis=0), rtol=2e-4, atol=2e-5)
        labelled = ((valid["part"] == "train") & valid[f"{task}_measured"].notna()).sum()
        assert {facts["training_labels"] for facts in chosen} == {labelled}


@pytest.mark.parametrize(("head", "kind"), RUNS)
def test_it_learns_what_a_molecule_decides(runs, head, kind):
    table = runs[head, kind].predictions
    test = table[(table["part"] == "test") & table["first_measured"].notna()]
    if kind == "classification":
        assert roc_auc_score(test["first_measured"], test["first"]) > 0.8
    else:
        blind = root_mean_squared_error(test["first_measured"], np.full(len(test), CARBONS.mean()))
        assert root_mean_squared_error(test["first_measured"], test["first"]) < 0.5 * blind


@pytest.mark.parametrize(("head", "kind"), RUNS)
def test_invalid_rows_stay_as_rows_of_nan(runs, head, kind):
    table = runs[head, kind].predictions
    assert table["smiles"].tolist() == messy(kind)["smiles"].tolist()
    assert np.flatnonzero(table["error"] != "").tolist() == BAD
    assert np.flatnonzero(table["first"].isna()).tolist() == BAD


@pytest.mark.parametrize(("head", "kind"), RUNS)
def test_predict_repeats_the_table_wherever_the_directory_lies(runs, head, kind, tmp_path, monkeypatch):
    table = runs[head, kind].predictions
    moved = shutil.copytree(runs[head, kind].output_dir, tmp_path / "moved")
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, lambda *_, **__: pytest.fail("a pickle was read"))
    with pytest.warns(InvalidMoleculeWarning):
        again = predict(moved, table["smiles"])
    columns = ["first", "second"] + (["first_sd", "second_sd"] if head == "random_forest" else [])
    assert [name for name in table if name.endswith("_sd")] == [name for name in columns if name.endswith("_sd")]
    # One batch may be made up otherwise than another: float32 rounding can send a molecule down another branch.
    assert list(again.columns) == ["smiles", *sorted(columns), "error"]
    np.testing.assert_allclose(again[columns], table[columns], rtol=1e-5, atol=1e-6)


def test_a_single_model_predicts_too(runs):
    result = runs["random_forest", "regression"]
    singles = [predict(result.output_dir / f"seed-{seed}", MOLECULES[:5])["first"] for seed in (0, 1)]
    assert not np.array_equal(*singles)
    np.testing.assert_allclose(predict(result.output_dir, MOLECULES[:5])["first"], np.mean(singles, axis=0), rtol=1e-6)


def test_the_encoder_stays_as_it_is_and_can_be_used_again(runs, encoder):
    place = runs["linear", "regression"].output_dir / "seed-0"
    kept, source = load_file(place / "model.safetensors"), load_file(encoder / "model.safetensors")
    for name, weights in kept.items():
        assert torch.equal(weights, source[f"exlm.{name}"])
    np.testing.assert_array_equal(embed(MOLECULES[:4], place), embed(MOLECULES[:4], encoder))
    assert SmilesTokenizer.from_pretrained(place)("CCO")["input_ids"] == SmilesTokenizer()("CCO")["input_ids"]


@pytest.mark.parametrize(("head", "kind"), RUNS)
def test_the_run_leaves_what_a_network_leaves(runs, head, kind):
    result = runs[head, kind]
    names = {path.name for path in result.output_dir.iterdir()}
    plots = {"roc.png"} if kind == "classification" else {"parity-0.png", "parity-1.png"}
    assert {"predictions.csv", "metrics.json", "report.json", "settings.json"} | plots <= names
    report, models = read(result.output_dir / "report.json"), 1 if head == "linear" else 2
    assert report["models"] == models
    assert report["settings"]["head"] == head
    assert report["settings"]["seeds"] == 2
    assert "epochs" not in report["settings"]
    figure = report["metrics"]["test"]["summary"]["rmse" if kind == "regression" else "roc_auc"]
    assert figure["n"] == models
    assert (figure["sd"] is None) == (models == 1)


def test_pooling_is_kept(encoder, tmp_path):
    table = pd.DataFrame({"smiles": MOLECULES, "carbons": CARBONS})
    result = finetune(table, tmp_path / "run", encoder, head="linear", pooling="cls", **SETTINGS)
    chosen = read(tmp_path / "run" / "seed-0" / HEAD_REPORT)["carbons"]
    vectors = embed(MOLECULES, encoder, "cls").astype(np.float64)
    expected = by_hand(result.predictions, "carbons", vectors, chosen, 0)
    np.testing.assert_allclose(predict(tmp_path / "run", MOLECULES)["carbons"], expected, rtol=2e-4)


@pytest.mark.parametrize("head", HEADS)
def test_a_seed_fixes_everything(runs, encoder, head, tmp_path):
    with pytest.warns(InvalidMoleculeWarning):
        again = finetune(messy("classification"), tmp_path / "again", encoder, head=head, seeds=2, **SETTINGS)
    pd.testing.assert_frame_equal(again.predictions, runs[head, "classification"].predictions, check_exact=True)


@pytest.mark.parametrize("head", HEADS)
def test_balanced_classes_raise_the_rare_class(encoder, head, tmp_path):
    rare = pd.DataFrame({"smiles": MOLECULES, "rare": [float(text.endswith("c1ccncc1")) for text in MOLECULES]})
    plain, balanced = (
        finetune(rare, tmp_path / str(on), encoder, head=head, seeds=1, balance_classes=on, **SETTINGS).predictions
        for on in (False, True)
    )
    test = plain["part"] == "test"
    assert balanced["rare"][test].mean() != plain["rare"][test].mean()
    train = plain["part"] == "train"
    if head == "linear":
        weight = positive_weights(rare[["rare"]][train].to_numpy())[0]
        vectors = embed(MOLECULES, encoder).astype(np.float64)
        scaled = StandardScaler().fit(vectors[train]).transform(vectors)
        chosen = read(tmp_path / "True" / "seed-0" / HEAD_REPORT)["rare"]
        oracle = LogisticRegression(C=chosen["C"], class_weight={0: 1, 1: weight}, max_iter=2000)
        expected = oracle.fit(scaled[train], rare["rare"][train]).predict_proba(scaled)[:, 1]
        np.testing.assert_allclose(balanced["rare"], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("head", HEADS)
def test_a_task_with_one_class_in_training_predicts_that_class(encoder, head, tmp_path):
    parts = np.array(["train"] * 60 + ["valid"] * 10 + ["test"] * 11)
    labels = np.where(parts == "train", 1.0, NITROGEN)
    table = pd.DataFrame({"smiles": MOLECULES, "one": labels, "two": NITROGEN, "part of": parts})
    settings = SETTINGS | {"split": "column", "split_column": "part of", "seeds": 1}
    result = finetune(table, tmp_path / "run", encoder, head=head, target=["one", "two"], **settings)
    assert (result.predictions["one"] == 1).all()
    assert result.predictions["two"].nunique() > 10
    assert read(tmp_path / "run" / "seed-0" / HEAD_REPORT)["one"]["estimator"] == "DummyClassifier"
    assert (predict(tmp_path / "run", ["CCO", "CCN"])["one"] == 1).all()


def test_a_task_without_training_labels_says_so(encoder, tmp_path):
    parts = np.array(["train"] * 60 + ["valid"] * 10 + ["test"] * 11)
    table = pd.DataFrame({"smiles": MOLECULES, "one": np.where(parts == "train", np.nan, CARBONS), "two": CARBONS})
    settings = SETTINGS | {"split": "column", "split_column": "part of", "target": ["one", "two"]}
    with pytest.warns(UserWarning, match="no molecule of the training part has a label of 'one'"):
        result = finetune(table.assign(**{"part of": parts}), tmp_path / "run", encoder, head="linear", **settings)
    assert (result.predictions["one"] == 0).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head": "linear", "encoder": None}, "trains no encoder, and one from scratch has nothing to say"),
        ({"head": "random_forest", "encoder": None}, "trains no encoder, and one from scratch has nothing to say"),
        ({"head": "forest"}, "head is 'network' or, on a frozen encoder, 'linear' or 'random_forest', not 'forest'"),
        ({"head": "linear", "epochs": 3, "dropout": 0.2}, "epochs, dropout would have no effect"),
        ({"head": "linear", "averaged_smiles": 4}, "averaged_smiles would have no effect"),
        ({"head": "linear", "seeds": 0}, "seeds must be at least 1"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_before_anything_is_written(encoder, tmp_path, settings, message):
    table = pd.DataFrame({"smiles": MOLECULES, "carbons": CARBONS})
    with pytest.raises(SmilexError, match=message):
        finetune(table, tmp_path / "run", **{"encoder": encoder, **SETTINGS, **settings})
    assert not (tmp_path / "run").exists()


def test_every_setting_of_a_recipe_is_in_use_or_refused():
    changed = {"balance_classes": True, "random_smiles": True, "layer_decay": 0.5, "learning_rate": 0.1, "dropout": 0.3}
    changed["precision"] = "bf16"
    for name in vars(Recipe()):
        recipe = Recipe(**{name: changed.get(name, 7)})
        assert settings_in_use("network", None, recipe) == vars(recipe) | {"precision": recipe.precision or "fp32"}
        if name == "balance_classes":
            assert settings_in_use("linear", "encoder", recipe) == {"balance_classes": True}
        else:
            with pytest.raises(SmilexError, match=f"{name} would have no effect"):
                settings_in_use("linear", "encoder", recipe)


@pytest.mark.parametrize("damage", ["missing", "cut", "another head", "weights"])
def test_directories_that_are_not_whole_are_refused(runs, damage, tmp_path):
    place = shutil.copytree(runs["linear", "regression"].output_dir / "seed-0", tmp_path / "model")
    if damage == "missing":
        (place / HEAD_FILE).unlink()
    elif damage == "cut":
        (place / HEAD_FILE).write_bytes((place / HEAD_FILE).read_bytes()[:500])
    elif damage == "another head":  # its classifiers answer, but there are as many as in any run of two tasks
        config = read(place / "config.json")
        (place / "config.json").write_text(json.dumps(config | {"id2label": {"0": "only"}, "label2id": {"only": 0}}))
    else:
        (place / "model.safetensors").unlink()
    with pytest.raises(SmilexError) as caught:
        predict(place, ["CCO"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("head", HEADS)
def test_info_tells_what_predicts(runs, head):
    facts = inspect(str(runs[head, "regression"].output_dir))
    assert facts["head on the frozen encoder"] == ("Ridge" if head == "linear" else "RandomForestRegressor")
    assert facts["trained with head"] == head
    assert facts["tasks"] == "'first', 'second'"
    assert ("2 seeds" in facts["kind"]) == (head == "random_forest")


def test_nothing_is_said_on_the_way(encoder, tmp_path, capfd):
    table = pd.DataFrame({"smiles": MOLECULES, "nitrogen": NITROGEN})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        finetune(table, tmp_path / "run", encoder, head="linear", **SETTINGS)
        predict(tmp_path / "run", ["CCO"])
    assert capfd.readouterr() == ("", "")
