"""Input, directories and disks that fine-tuning cannot use, or can use only just."""

import errno
import json
import re
import resource
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem

from smilex import finetune, predict
from smilex.data.rows import InvalidMoleculeWarning
from smilex.data.splits import split
from smilex.errors import SmilexError
from smilex.modeling import ExLMForMoleculeProperty

RINGS = ["C1CC1", "c1ccccc1", "c1ccncc1", "C1CCNCC1", "c1ccsc1", "C1CCOC1", "C1CCCCC1", "N", "O"]
MOLECULES = [Chem.CanonSmiles("C" * length + ring) for ring in RINGS for length in range(1, 10)]
CARBONS = np.array([text.upper().count("C") for text in MOLECULES], dtype=float)
NITROGEN = np.array([float("N" in text.upper()) for text in MOLECULES])
QUICK = {"split": "random", "seeds": 1, "epochs": 2, "learning_rate": 2e-3, "progress": False}


def carbons(**changes):
    return pd.DataFrame({"smiles": MOLECULES, "carbons": CARBONS, **changes})


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "targets", [CARBONS + 1e9, CARBONS * 1e300, CARBONS * 1e-40, 1 + 1e-9 * CARBONS, np.r_[1e308, CARBONS[1:]]]
)
def test_targets_that_single_precision_cannot_hold(encoder, tmp_path, targets):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            SmilexError, match=r"'carbons' is out of the range .* subtract a constant or change the unit"
        ):
            finetune(carbons(carbons=targets), tmp_path / "run", encoder, **QUICK)
    assert not (tmp_path / "run").exists()


def test_a_task_without_labels_to_learn_from(encoder, tmp_path):
    parts = split(MOLECULES, "random")
    labels = CARBONS**2 + 0.5
    labels[parts.train] = np.nan
    with pytest.warns(UserWarning, match="training part has a label of 'b': its predictions mean nothing") as caught:
        result = finetune(carbons(b=labels), tmp_path, encoder, **QUICK)
    assert [warning.filename for warning in caught] == [__file__]
    assert np.isfinite(result.predictions[["carbons", "b"]]).to_numpy().all()


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_a_part_without_labels(encoder, tmp_path, part):
    table = carbons()
    table.loc[split(MOLECULES, "random").parts()[part], "carbons"] = np.nan
    with pytest.raises(SmilexError, match=f"no molecule of the {part} part has a label"):
        finetune(table, tmp_path / "run", encoder, **QUICK)


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_a_part_with_one_class_only(encoder, tmp_path, part):
    labels = NITROGEN.copy()
    labels[split(MOLECULES, "random").parts()[part]] = 0
    table = pd.DataFrame({"smiles": MOLECULES, "has N": labels})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = finetune(table, tmp_path, encoder, **QUICK)
    assert result.predictions["has N"].between(0, 1).all()
    assert (tmp_path / "roc.png").exists() == (part != "test")
    if part != "train":
        figures = read(tmp_path / "metrics.json")[part]
        assert figures["ensemble"]["skipped_tasks"] == ["has N"]
        assert figures["summary"]["roc_auc"] == {"mean": None, "sd": None, "n": 0}


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_a_part_with_one_value_only(encoder, tmp_path, part):
    labels = CARBONS.copy()
    labels[split(MOLECULES, "random").parts()[part]] = 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = finetune(carbons(carbons=labels), tmp_path, encoder, **QUICK)
    assert np.isfinite(result.predictions["carbons"]).all()


def test_many_tasks_with_awkward_names_and_many_gaps(encoder, tmp_path):
    generator = np.random.default_rng(0)
    names = ["a/b", "smiles (2)", "$x^2$", "100 %", "µ\n", "a,b", '"', *(f"t{number}" for number in range(60))]
    labels = np.where(generator.random((len(MOLECULES), len(names))) < 0.5, np.nan, NITROGEN[:, None])
    table = pd.concat([pd.DataFrame({"smiles": MOLECULES}), pd.DataFrame(labels, columns=names)], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = finetune(table, tmp_path, encoder, **QUICK)
        predicted = predict(tmp_path, MOLECULES)
    assert list(predicted.columns) == ["smiles", *names, "error"]
    assert list(pd.read_csv(tmp_path / "predictions.csv").columns) == list(result.predictions.columns)


@pytest.mark.parametrize("name", [r"$\frac$", "a_b$ {\\"])
def test_the_name_of_a_task_is_no_formula(encoder, tmp_path, name):
    finetune(pd.DataFrame({"smiles": MOLECULES, name: CARBONS}), tmp_path, encoder, **QUICK)
    assert (tmp_path / "parity.png").is_file()


@pytest.mark.parametrize("columns", [["error"], ["part"], ["a", "a_sd"], ["a", "a_measured"]])
def test_a_task_never_takes_the_column_of_another(encoder, tmp_path, columns):
    table = pd.DataFrame({"smiles": MOLECULES, **dict.fromkeys(columns, CARBONS)})
    with pytest.raises(SmilexError, match="rename the target column"):
        finetune(table, tmp_path / "run", encoder, **QUICK)
    table = pd.DataFrame({"structure": MOLECULES, "smiles": CARBONS})
    with pytest.raises(SmilexError, match="rename the target column 'smiles'"):
        finetune(table, tmp_path / "run", encoder, smiles_column="structure", **QUICK)
    assert not (tmp_path / "run").exists()


def test_text_that_is_not_utf8_is_reported_as_escapes(encoder, tmp_path):
    smiles = pd.Series([*MOLECULES, "C\udcff"], dtype=object)
    table = pd.DataFrame({"smiles": smiles, "carbons": [*CARBONS, 1.0]})
    with pytest.warns(InvalidMoleculeWarning, match="not UTF-8"):
        finetune(table, tmp_path, encoder, **QUICK)
    assert "C\\udcff" in (tmp_path / "predictions.csv").read_text(encoding="utf-8")
    assert read(tmp_path / "report.json")["rows"]["invalid"][0]["smiles"] == "C\\udcff"


BAD_TABLES = {
    "no column is known.* are: 'name', 'carbons'": pd.DataFrame({"name": MOLECULES, "carbons": CARBONS}),
    "'carbons' is not numeric .row 1: 'many'.": carbons(carbons=["1", "many", *CARBONS[2:]]),
    "all labels are missing": carbons(carbons=np.nan),
    "one class only": carbons(carbons=1),
    "one value only": carbons(carbons=2.5),
    "no rows": carbons()[:0],
    "no target column": pd.DataFrame({"smiles": MOLECULES}),
    "infinite label": carbons(carbons=[np.inf, *CARBONS[1:]]),
    "0 of 20 rows hold a valid molecule": pd.DataFrame({"smiles": ["nonsense"] * 20, "y": range(20)}),
    "2 of 2 rows hold a valid molecule; a split needs at least 3": carbons()[:2],
}


@pytest.mark.filterwarnings("ignore::smilex.data.rows.InvalidMoleculeWarning")
@pytest.mark.parametrize(("message", "table"), BAD_TABLES.items())
def test_bad_tables_are_named_in_one_line_and_leave_nothing(encoder, tmp_path, message, table):
    with pytest.raises(SmilexError, match=message) as caught:
        finetune(table, tmp_path / "run", encoder, **QUICK)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", b"", "is empty"),
        ("blank.csv", b"\n \n", "is empty"),
        ("header.csv", b"smiles,y\n", "no rows"),
        ("no-smiles.csv", b"drug,y\nC,1\n", "the columns are: 'drug', 'y'"),
        ("bytes.csv", b"smiles,y\nC\xff,1\n", "is no proper csv table"),
        ("cut.parquet", b"PAR1", "is no proper parquet table"),
        ("cut.csv.gz", b"\x1f\x8b\x08", "cannot read"),
        ("table.xlsx", b"PK", "save the table as .csv"),
    ],
)
def test_bad_files(encoder, tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SmilexError, match=message) as caught:
        finetune(path, tmp_path / "run", encoder, **QUICK)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_missing_file(encoder, tmp_path):
    with pytest.raises(SmilexError, match="neither a file nor the name of a data set"):
        finetune(tmp_path / "nowhere.csv", tmp_path / "run", encoder, **QUICK)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": 0}, "seeds must be at least 1, not 0"),
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"patience": -1}, "patience must be at least 1, not -1"),
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive, not 0.0"),
        ({"learning_rate": -1e-3}, "learning_rate must be positive"),
        ({"learning_rate": float("nan")}, "learning_rate must be positive, not nan"),
        ({"learning_rate": float("inf")}, "learning_rate must be positive, not inf"),
        ({"split": "temporal"}, "unknown split 'temporal'"),
        ({"pooling": "max"}, "pooling is 'cls' or 'mean', not 'max'"),
        ({"target": "oxygens"}, "no target column 'oxygens'; the columns are 'carbons'"),
        ({"smiles_column": "mol"}, "no column is called 'mol' (smiles_column); the columns are: 'smiles', 'carbons'"),
        ({"encoder": None, "model": "huge"}, "unknown model size 'huge'"),
        ({"encoder": "smilex-enormous"}, "no encoder 'smilex-enormous'"),
        ({"model": "tiny"}, "pass encoder=None to start from scratch, or leave model out"),
    ],
)
def test_bad_settings_leave_nothing(encoder, tmp_path, changes, message):
    settings = {"encoder": encoder, **QUICK, **changes}
    with pytest.raises(SmilexError, match=re.escape(message)) as caught:
        finetune(carbons(), tmp_path / "run", **settings)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_the_default_encoder_is_the_one_of_the_package(tmp_path):
    result = finetune(carbons()[:10], tmp_path / "run", **QUICK | {"epochs": 1})
    assert result.report["settings"]["encoder"] == "smilex-small"
    assert len(predict(tmp_path / "run", ["C"])) == 1


def break_config(directory, **changes):
    path = directory / "config.json"
    path.write_text(json.dumps({**read(path), **changes}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: (path / "config.json").unlink(), "is not a model directory"),
        (lambda path: (path / "config.json").write_text("{"), "cannot read"),
        (lambda path: break_config(path, model_type="bert"), "a model of type 'bert'"),
        (lambda path: break_config(path, smilex_version="999"), "pip install --upgrade smilex"),
        (lambda path: (path / "model.safetensors").unlink(), "cannot load the weights"),
        (lambda path: (path / "model.safetensors").write_bytes(b"12345678"), "cannot load the weights"),
        (lambda path: break_config(path, num_hidden_layers=3), "it lacks layers.2"),
        (lambda path: break_config(path, hidden_size=64), "was not saved as ExLMModel"),
    ],
)
def test_a_damaged_encoder_is_never_replaced_by_a_new_one(encoder, tmp_path, damage, message):
    broken = shutil.copytree(encoder, tmp_path / "broken")
    damage(broken)
    with pytest.raises(SmilexError, match=message):
        finetune(carbons(), tmp_path / "run", broken, **QUICK)
    with pytest.raises(SmilexError):
        predict(tmp_path / "run", MOLECULES)


def test_an_empty_directory_will_do(encoder, tmp_path):
    (tmp_path / "run").mkdir()
    finetune(carbons(), tmp_path / "run", encoder, **QUICK | {"epochs": 1})


def test_a_directory_with_something_in_it_is_left_alone(encoder, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(SmilexError, match="is not empty and holds no run: name another directory"):
        finetune(carbons(), tmp_path, encoder, **QUICK)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_is_never_written_over(encoder, tmp_path):
    finetune(carbons(), tmp_path, encoder, **QUICK)
    before = (tmp_path / "report.json").read_bytes()
    with pytest.raises(SmilexError, match="already holds a run: name another directory"):
        finetune(carbons(), tmp_path, encoder, **QUICK)
    assert (tmp_path / "report.json").read_bytes() == before


@pytest.mark.parametrize("place", ["a.file", "a.file/run", "x" * 300])
def test_a_directory_that_cannot_be_made(encoder, tmp_path, place):
    (tmp_path / "a.file").write_text("mine")
    with pytest.raises(SmilexError, match="cannot write to") as caught:
        finetune(carbons(), tmp_path / place, encoder, **QUICK)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "a.file").read_text() == "mine"


@pytest.mark.parametrize(
    "function",
    [
        "property_training.save_model",
        "finetuning.write_json",
        "finetuning.write_text",
        "finetuning._plot",
        "finetuning.Run.finish",
    ],
)
def test_no_space_left(encoder, tmp_path, monkeypatch, function):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"smilex.{function}", full)
    with pytest.raises(SmilexError, match=r"cannot write to .*No space left on device; free space"):
        finetune(carbons(), tmp_path / "run", encoder, **QUICK)
    with pytest.raises(SmilexError):
        predict(tmp_path / "run", MOLECULES)


@pytest.mark.parametrize("limit", [0, 1_000, 20_000, 60_000])
def test_files_that_the_system_cuts_off(encoder, tmp_path, limit):
    """Every write that would make a file longer than the limit fails, wherever it is made."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        with pytest.raises(SmilexError, match="cannot write") as caught:
            finetune(carbons(), tmp_path / "run", encoder, **QUICK)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    with pytest.raises(SmilexError):
        predict(tmp_path / "run", MOLECULES)


def test_an_interrupted_run_is_not_taken_for_whole(encoder, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("smilex.finetuning._conclude", stop)
    with pytest.raises(KeyboardInterrupt):
        finetune(carbons(), tmp_path, encoder, **QUICK)
    assert (tmp_path / "seed-0" / "model.safetensors").is_file()
    with pytest.raises(SmilexError, match="did not finish"):
        predict(tmp_path, MOLECULES)


def test_training_that_diverges_says_so(encoder, tmp_path, monkeypatch):
    original = ExLMForMoleculeProperty.predict
    monkeypatch.setattr(ExLMForMoleculeProperty, "predict", lambda *args: original(*args) * float("nan"))
    with pytest.raises(SmilexError, match="training diverged in epoch 1: lower learning_rate"):
        finetune(carbons(), tmp_path, encoder, **QUICK)
