import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem

from smilex import SmilesTokenizer, predict
from smilex.chem import canonicalize, enumerate_smiles
from smilex.data.rows import InvalidMoleculeWarning
from smilex.errors import SmilexError
from smilex.modeling import ExLMConfig, ExLMForMaskedLM, ExLMForMoleculeProperty, ExLMModel
from smilex.modeling.loading import quiet_transformers
from smilex.modeling.molecule_property import CLASSIFICATION, REGRESSION
from smilex.prediction import check_task_names

MOLECULES = ["OCC", "c1ccccc1", "CC(=O)Oc1ccccc1C(=O)O", "C[C@H](N)C(=O)O", "C", "CCCCCCCCCCCC"]
TASKS = ["logS", "pIC50 (nM/µ)"]


def save(directory, *, seed=0, tasks=TASKS, problem_type=REGRESSION, **changes):
    """A model with weights that were drawn, not trained; large ones, so that molecules differ."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    names = {"id2label": dict(enumerate(tasks)), "problem_type": problem_type}
    config = ExLMConfig(**sizes, **names, vocab_size=len(SmilesTokenizer()), initializer_range=0.3, **changes)
    model = ExLMForMoleculeProperty(config)
    model.target_mean.copy_(torch.linspace(100, 200, len(tasks)))
    model.target_std.copy_(torch.linspace(5, 10, len(tasks)))
    with quiet_transformers():
        model.save_pretrained(directory)
    return directory


def save_run(directory, seeds, **settings):
    for seed in range(seeds):
        save(directory / f"seed-{seed}", seed=seed, **settings)
    (directory / "report.json").write_text(json.dumps({"models": seeds}))
    return directory


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Twelve seeds: their order by number is not that by name."""
    return save_run(tmp_path_factory.mktemp("run"), 12)


def by_hand(smiles, directory):
    """One molecule at a time through the model."""
    tokenizer, model = SmilesTokenizer(), ExLMForMoleculeProperty.from_pretrained(directory).eval()
    with torch.no_grad():
        logits = [model(**tokenizer(canonicalize(text), return_tensors="pt")).logits[0] for text in smiles]
    values = torch.stack(logits)
    if model.config.problem_type == REGRESSION:
        return (values * model.target_std + model.target_mean).numpy()
    return values.sigmoid().numpy()


def test_the_columns_of_one_model(model):
    table = predict(model, MOLECULES)
    assert list(table.columns) == ["smiles", *TASKS, "error"]
    assert table["smiles"].tolist() == MOLECULES
    assert (table["error"] == "").all()
    assert table.index.tolist() == list(range(len(MOLECULES)))


def test_the_columns_of_several_seeds(run):
    table = predict(run, MOLECULES)
    assert list(table.columns) == ["smiles", "logS", "logS_sd", "pIC50 (nM/µ)", "pIC50 (nM/µ)_sd", "error"]


@pytest.mark.parametrize("problem_type", [REGRESSION, CLASSIFICATION])
def test_predictions_are_those_of_the_model_called_by_hand(tmp_path, problem_type):
    save(tmp_path, problem_type=problem_type)
    expected = by_hand(MOLECULES, tmp_path)
    np.testing.assert_allclose(predict(tmp_path, MOLECULES)[TASKS], expected, rtol=1e-5, atol=1e-5)
    assert expected.std(0).min() > 0.01
    if problem_type == CLASSIFICATION:
        assert expected.min() >= 0
        assert expected.max() <= 1


def test_several_seeds_give_the_mean_and_spread_of_the_single_models(run):
    table = predict(run, MOLECULES)
    single = np.stack([by_hand(MOLECULES, run / f"seed-{seed}") for seed in range(12)])
    np.testing.assert_allclose(table[TASKS], single.mean(0), rtol=1e-5)
    np.testing.assert_allclose(table[[f"{task}_sd" for task in TASKS]], single.std(0, ddof=1), rtol=1e-3)
    for seed in (0, 11):
        np.testing.assert_allclose(predict(run / f"seed-{seed}", MOLECULES)[TASKS], single[seed], rtol=1e-5)


def test_a_run_of_one_seed_has_no_spread(tmp_path):
    table = predict(save_run(tmp_path, 1), MOLECULES)
    assert list(table.columns) == ["smiles", *TASKS, "error"]


def test_tasks_keep_their_order_beyond_ten(tmp_path):
    tasks = [f"task {number}" for number in range(12)]
    save(tmp_path, tasks=tasks)
    table = predict(tmp_path, MOLECULES)
    assert list(table.columns)[1:-1] == tasks
    np.testing.assert_allclose(table[tasks], by_hand(MOLECULES, tmp_path), rtol=1e-5)


INVALID = {
    "": "empty",
    "C1CC": "ring",
    "CC–O": "non-ASCII",
    "C\x07C": "control character",
    "C\udcff": "not UTF-8",
    "C" * 600: "too long",
    "C" * 10_000: "too long",
    None: "NoneType",
    float("nan"): "float",
}


def test_invalid_rows_are_nan_with_their_reason_and_the_others_stay_in_place(run):
    mixed = [item for pair in zip(INVALID, MOLECULES * 2, strict=False) for item in pair]
    with pytest.warns(InvalidMoleculeWarning, match=f"{len(INVALID)} of {len(mixed)} rows") as caught:
        table = predict(run, mixed)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    bad = np.arange(len(mixed)) % 2 == 0
    numbers = table.drop(columns=["smiles", "error"])
    assert numbers[bad].isna().to_numpy().all()
    assert numbers[~bad].notna().to_numpy().all()
    assert (table["error"][~bad] == "").all()
    for error, reason in zip(table["error"][bad], INVALID.values(), strict=True):
        assert reason in error
    np.testing.assert_allclose(table[~bad][TASKS], predict(run, (MOLECULES * 2)[: len(INVALID)])[TASKS], rtol=1e-5)


def test_smiles_stand_in_the_table_as_they_were_given(model):
    with pytest.warns(InvalidMoleculeWarning):
        table = predict(model, [" OCC", Chem.MolFromSmiles("OCC"), None, "nonsense"])
    assert table["smiles"].tolist()[:2] == [" OCC", "CCO"]
    assert pd.isna(table["smiles"][2])
    assert table["smiles"][3] == "nonsense"
    np.testing.assert_allclose(table[TASKS].iloc[0], table[TASKS].iloc[1], rtol=1e-6)


def test_a_prediction_does_not_depend_on_how_the_molecule_is_written(model):
    spellings = ["CC(=O)Oc1ccccc1C(=O)O", *enumerate_smiles("CC(=O)Oc1ccccc1C(=O)O", 5)]
    values = predict(model, spellings)[TASKS].to_numpy()
    np.testing.assert_allclose(values, np.broadcast_to(values[0], values.shape), rtol=1e-6)


def test_invalid_rows_are_errors_when_asked_for(model):
    with pytest.raises(SmilexError, match=r"^row 1: 'C1CC' cannot be used: "):
        predict(model, ["C", "C1CC"], errors="raise")
    with pytest.raises(SmilexError, match="errors is 'report' or 'raise'"):
        predict(model, ["C"], errors="skip")


@pytest.mark.parametrize("wrap", [tuple, iter, np.array, pd.Series])
def test_any_iterable(model, wrap):
    pd.testing.assert_frame_equal(predict(model, wrap(MOLECULES)), predict(model, MOLECULES))


def test_no_molecules_give_a_table_without_rows(run):
    table = predict(run, [])
    assert len(table) == 0
    assert list(table.columns) == list(predict(run, MOLECULES).columns)


@pytest.mark.parametrize("wrong", [None, 7, pd.DataFrame({"smiles": MOLECULES}), {"smiles": MOLECULES}])
def test_what_is_no_list_of_molecules(model, wrong):
    with pytest.raises(SmilexError, match=r"in place of many molecules|is no list of molecules"):
        predict(model, wrong)


@pytest.mark.parametrize("one", ["CCO", Chem.MolFromSmiles("CCO")])
def test_one_molecule_in_place_of_many(model, one):
    with pytest.raises(SmilexError, match="pass a list"):
        predict(model, one)


def test_the_limit_of_length_is_that_of_the_model(tmp_path):
    save(tmp_path, max_position_embeddings=10)
    with pytest.warns(InvalidMoleculeWarning, match="the limit is 10"):
        table = predict(tmp_path, ["C" * 8, "C" * 9])
    assert table["logS"].notna().tolist() == [True, False]


def test_a_run_that_did_not_finish_is_refused(run, tmp_path):
    shutil.copytree(run / "seed-0", tmp_path / "seed-0")
    with pytest.raises(SmilexError, match="did not finish"):
        predict(tmp_path, MOLECULES)


def test_a_run_with_a_damaged_model_is_refused(tmp_path):
    save_run(tmp_path, 2)
    (tmp_path / "seed-1" / "model.safetensors").write_bytes(b"")
    with pytest.raises(SmilexError, match=r"cannot load the weights in .*seed-1"):
        predict(tmp_path, MOLECULES)


@pytest.mark.parametrize("lost", [(0,), (1,), (2,), (0, 1), (1, 2)])
def test_a_run_that_lost_models_is_refused(tmp_path, lost):
    """A copy that was cut off would predict other values without a word."""
    save_run(tmp_path, 3)
    for number in lost:
        shutil.rmtree(tmp_path / f"seed-{number}")
    with pytest.raises(SmilexError, match=rf"lacks seed-{lost[0]}: the run made 3 models; copy the whole directory"):
        predict(tmp_path, MOLECULES)


def test_a_run_with_a_model_too_many_is_refused(tmp_path):
    save(save_run(tmp_path, 2) / "seed-2")
    with pytest.raises(SmilexError, match=r"has a seed-2 that is not its own: the run made 2 models"):
        predict(tmp_path, MOLECULES)


@pytest.mark.parametrize("changes", [{"tasks": ["logP", "logS"]}, {"tasks": ["one"]}, {"problem_type": CLASSIFICATION}])
def test_models_of_two_runs_are_refused(tmp_path, changes):
    save(save_run(tmp_path, 2) / "seed-1", **changes)
    with pytest.raises(SmilexError, match=r"seed-1 predicts something else than .*seed-0: they are not of one run"):
        predict(tmp_path, MOLECULES)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff", b'{"models": null}', b'{"models": "x"}'])
def test_a_damaged_report_is_refused(tmp_path, content):
    (save_run(tmp_path, 1) / "report.json").write_bytes(content)
    with pytest.raises(SmilexError, match=r"cannot read how many models .*report.json has") as caught:
        predict(tmp_path, MOLECULES)
    assert "\n" not in str(caught.value)


def test_other_folders_in_a_run_are_left_alone(tmp_path):
    save_run(tmp_path, 1)
    for name in ("seed-notes", "seed-00", "seed-0 (copy)"):
        (tmp_path / name).mkdir()
    assert len(predict(tmp_path, MOLECULES)) == len(MOLECULES)


@pytest.mark.parametrize("name", ["nowhere", "x" * 5000, "a.file", "a.file/below"])
def test_a_directory_that_does_not_exist(tmp_path, name):
    (tmp_path / "a.file").write_text("")
    with pytest.raises(SmilexError, match="there is no such directory"):
        predict(tmp_path / name, MOLECULES)


def test_a_directory_that_is_no_model(tmp_path):
    with pytest.raises(SmilexError, match="is not a model directory"):
        predict(tmp_path, MOLECULES)


@pytest.mark.parametrize("model_class", [ExLMModel, ExLMForMaskedLM])
def test_a_pretrained_model_predicts_nothing(tmp_path, model_class):
    with quiet_transformers():
        model_class(ExLMConfig.from_preset("tiny")).save_pretrained(tmp_path)
    with pytest.raises(SmilexError, match="was not saved as ExLMForMoleculeProperty"):
        predict(tmp_path, MOLECULES)


def test_a_model_of_a_newer_version(tmp_path):
    save(tmp_path, smilex_version="999.0")
    with pytest.raises(SmilexError, match="pip install --upgrade smilex"):
        predict(tmp_path, MOLECULES)


@pytest.mark.parametrize(
    "tasks", [["smiles"], ["error"], ["part"], ["a", "a_sd"], ["a_sd", "a"], ["a_measured", "a"], ["x", "x_sd", "y"]]
)
def test_a_task_never_takes_the_column_of_another(tmp_path, tasks):
    with pytest.raises(SmilexError, match="rename the target column") as caught:
        check_task_names(tasks)
    assert "\n" not in str(caught.value)
    save(tmp_path, tasks=tasks)
    with pytest.raises(SmilexError, match="rename the target column"):
        predict(tmp_path, MOLECULES)


@pytest.mark.parametrize("tasks", [["Smiles", "a/b"], ["a", "b_sd"], ["sd"], ["_sd"], ["", " "], ["a_sd_sd", "a"]])
def test_names_that_only_look_like_others_are_kept(tmp_path, tasks):
    save(tmp_path, tasks=tasks)
    assert list(predict(tmp_path, MOLECULES).columns) == ["smiles", *tasks, "error"]


def test_nothing_is_printed(run, capfd):
    predict(run, MOLECULES)
    assert capfd.readouterr() == ("", "")


def test_the_names_of_tasks_are_those_of_the_saved_configuration(model):
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    assert list(config["id2label"].values()) == TASKS
