import dataclasses
import inspect
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import smilex.finetuning
from smilex import cli
from smilex.errors import SmilexError
from smilex.integrations.sklearn import SmilesClassifier, SmilesRegressor
from smilex.recipe import Recipe

CHANGED = {
    "epochs": 7,
    "patience": 3,
    "batch_size": 8,
    "learning_rate": 2e-3,
    "layer_decay": 0.5,
    "dropout": 0.25,
    "balance_classes": not Recipe.balance_classes,
    "random_smiles": not Recipe.random_smiles,
    "averaged_smiles": 5,
    "precision": "bf16",
}
DEFAULTS = {field.name: field.default for field in dataclasses.fields(Recipe)}


@pytest.mark.parametrize("function", [smilex.finetune, cli.finetune, SmilesClassifier, SmilesRegressor])
def test_who_trains_takes_every_setting_with_the_same_default(function):
    parameters = inspect.signature(function).parameters
    assert {name: parameters[name].default for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("name", CHANGED)
def test_each_setting_reaches_the_recipe(name, tmp_path, monkeypatch):
    """From the command line, through `smilex.finetune` and the estimators."""
    seen = []

    def stop(*arguments, **_):
        seen.extend(argument for argument in arguments if isinstance(argument, Recipe))
        raise SmilexError("seen enough")

    expected = dataclasses.replace(Recipe(), **{name: CHANGED[name]})
    monkeypatch.setattr(smilex.finetuning, "property_config", stop)
    monkeypatch.setattr("smilex.integrations.sklearn.base.property_config", stop)
    option = f"--{name.replace('_', '-')}"
    value = [str(CHANGED[name])]
    if isinstance(CHANGED[name], bool):
        option, value = option if CHANGED[name] else f"--no-{option[2:]}", []
    command = ["finetune", "nav17", str(tmp_path / "run"), "--from-scratch", "tiny", option, *value]
    assert "seen enough" in CliRunner().invoke(cli.app, command).output
    for estimator, y in ((SmilesRegressor, [1.0, 2.0]), (SmilesClassifier, [0, 1])):
        with pytest.raises(SmilexError, match="seen enough"):
            estimator(**{name: CHANGED[name]}).fit(["C", "CC"], y)
    assert seen == 3 * [expected]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"averaged_smiles": 0}, "averaged_smiles must be at least 1, not 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be positive, not nan"),
        ({"layer_decay": 0.0}, "layer_decay lies above 0 and at most at 1, not at 0.0"),
        ({"layer_decay": 1.5}, "layer_decay lies above 0 and at most at 1, not at 1.5"),
        ({"layer_decay": float("nan")}, "layer_decay lies above 0"),
        ({"dropout": -0.1}, "dropout is a share from 0 to below 1, not -0.1"),
        ({"dropout": 1.0}, "dropout is a share from 0 to below 1, not 1.0"),
        ({"dropout": float("nan")}, "dropout is a share"),
        ({"precision": "fp16"}, "precision is 'fp32' or 'bf16', not 'fp16'"),
        ({"precision": True}, "precision is 'fp32' or 'bf16', not True"),
    ],
)
def test_settings_that_cannot_be_used(changes, message):
    with pytest.raises(SmilexError, match=message):
        Recipe(**changes)


NUMBERS = [name for name in CHANGED if name != "precision"]
WRONG_TYPES = {
    int: (1.5, 2.0, "2", None, True, float("nan"), float("inf"), [1]),
    float: ("0.5", None, True, 1j, [0.5]),
    type(None): ("0.5", True, 1j, [0.5]),  # dropout: None is its default
    bool: ("no", "", 1, 0.0, None),
}


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in NUMBERS for value in WRONG_TYPES[type(DEFAULTS[name])]],
)
def test_settings_of_a_wrong_type(name, value):
    """A text in place of a number, as a file of settings may hold it, or a share of a pass."""
    with pytest.raises(SmilexError, match=f"^{name} must be [^\n]*, not {re.escape(repr(value))}$"):
        Recipe(**{name: value})


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_numpy_become_plain_ones(name):
    """Searches draw them, and JSON and RDKit do not take them."""
    kinds = {bool: np.bool_, int: np.int64, float: np.float32}
    value = CHANGED[name]
    found = getattr(Recipe(**{name: kinds[type(value)](value)}), name)
    assert type(found) is type(value)
    assert found == pytest.approx(value)


@pytest.mark.parametrize("value", WRONG_TYPES[int])
def test_seeds_that_are_no_count(value, tmp_path):
    with pytest.raises(SmilexError, match=r"^seeds must be a whole number, not"):
        smilex.finetune("nav17", tmp_path / "run", None, model="tiny", seeds=value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", ["0.1", None, True])
def test_a_validation_fraction_that_is_no_number(value):
    with pytest.raises(SmilexError, match=r"^validation_fraction must be a number, not"):
        SmilesRegressor(validation_fraction=value).fit(["C", "CC"], [1.0, 2.0])


def test_an_encoder_that_is_no_path(tmp_path):
    for encoder in (3, ["runs/encoder"]):
        with pytest.raises(SmilexError, match="encoder is a directory or a name, not"):
            smilex.finetune("nav17", tmp_path / "run", encoder)


def test_the_settings_of_the_model():
    assert Recipe(dropout=None).model_fields() == {"averaged_smiles": Recipe.averaged_smiles}
    fields = Recipe(dropout=0.0, averaged_smiles=4).model_fields()
    assert fields == {"averaged_smiles": 4, "hidden_dropout_prob": 0.0}
