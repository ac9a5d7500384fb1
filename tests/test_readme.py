"""What the README calls exists and takes those arguments; what runs within seconds is run."""

import ast
import importlib
import inspect
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer

import smilex
from smilex.cli import app
from smilex.data.properties import load_properties
from smilex.data.rows import InvalidMoleculeWarning

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PYTHON = [text for language, text in SNIPPETS if language == "python"]
COMMANDS = [
    line.partition("#")[0].removeprefix("smilex ").strip()
    for language, text in SNIPPETS
    if not language
    for line in text.splitlines()
    if line.startswith("smilex ")
]


def imports(tree):
    """Names that a snippet imports from smilex, beside smilex itself."""
    found = {"smilex": smilex}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("smilex"):
            if "deepchem" in node.module and not find_spec("deepchem"):
                pytest.skip("DeepChem is not installed; it needs Python < 3.12")
            module = importlib.import_module(node.module)
            found |= {alias.name: getattr(module, alias.name) for alias in node.names}
    return found


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_calls_of_smilex_fit_the_signatures(number):
    tree = ast.parse(PYTHON[number])
    known = imports(tree)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        first, *rest = ast.unparse(call.func).split(".")
        if first in known:
            function = known[first]
            for name in rest:
                function = getattr(function, name)
            inspect.signature(function).bind(*call.args, **{word.arg: word.value for word in call.keywords})


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_take_these_arguments(line):
    name, *arguments = shlex.split(line)
    command = typer.main.get_command(app).commands[name]
    command.make_context(name, arguments)  # exits where it cannot be parsed


def test_there_is_something_to_check():
    assert len(PYTHON) > 5
    assert {line.split()[0] for line in COMMANDS} >= {"pretrain", "finetune", "predict", "embed"}


def test_the_first_snippet_runs(tmp_path, monkeypatch, capsys):
    """As it stands, but on few molecules and with one pass of two seeds."""
    monkeypatch.chdir(tmp_path)
    data = load_properties("nav17")
    pd.DataFrame({"smiles": data.smiles, "pIC50": data.targets[:, 0]})[::24].to_csv("few.csv", index=False)
    quick = PYTHON[0].replace('"nav17"', '"few.csv"').replace("seeds=3", "seeds=2, epochs=1, progress=False")
    found = {}
    with pytest.warns(InvalidMoleculeWarning, match="row 1: 'no molecule'"):
        exec(quick, found)  # noqa: S102 (the README of this repository)
    assert list(found["table"].columns) == ["smiles", "pIC50", "pIC50_sd", "error"]
    assert found["table"]["pIC50"].isna().tolist() == [False, True]
    assert found["vectors"].shape == (2, 128)
    assert found["vectors"].dtype == np.float32
    assert re.match(r"\{'mean': [\d.]+, 'sd': [\d.]+, 'n': 2\}", capsys.readouterr().out)
