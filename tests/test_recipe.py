import dataclasses
import inspect

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
            estimator(model="tiny", **{name: CHANGED[name]}).fit(["C", "CC"], y)
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
    ],
)
def test_settings_that_cannot_be_used(changes, message):
    with pytest.raises(SmilexError, match=message):
        Recipe(**changes)


def test_the_settings_of_the_model():
    assert Recipe(dropout=None).model_fields() == {"averaged_smiles": Recipe.averaged_smiles}
    fields = Recipe(dropout=0.0, averaged_smiles=4).model_fields()
    assert fields == {"averaged_smiles": 4, "hidden_dropout_prob": 0.0}
