import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

import smilex

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "rdkit", "deepchem", "datasets")
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?\s*(?:(>=|==)\s*([^\s;]+))?")


def normal(name):
    """One spelling for a name, as package indexes compare them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(lines):
    """Name → the operator and version asked for."""
    found = {}
    for line in lines:
        name, operator, version = REQUIREMENT.match(line.partition("#")[0].strip()).groups()
        found[normal(name)] = (operator, version)
    return found


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def in_fresh_process(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_import_smilex_is_light():
    code = f"import sys, smilex; print([name for name in {HEAVY} if name in sys.modules])"
    assert in_fresh_process(code).strip() == "[]"


def test_analysis_is_reached_from_smilex_and_is_light_until_it_works():
    code = f"import sys, smilex; smilex.analysis; print([name for name in {HEAVY} if name in sys.modules])"
    assert in_fresh_process(code).strip() == "[]"
    code = "import sys, smilex; print(smilex.analysis.effective_rank([[1, 0], [0, 1]]), 'torch' in sys.modules)"
    assert in_fresh_process(code).strip() == "2 False"
    assert "analysis" in dir(smilex)


def test_the_command_line_is_light_until_it_works():
    code = f"import sys, smilex.cli; print([name for name in {HEAVY} if name in sys.modules])"
    assert in_fresh_process(code).strip() == "[]"


@pytest.mark.parametrize("module", ["smilex.chem", "smilex.errors"])
def test_chemistry_does_without_torch(module):
    code = f"import sys, {module}; print('torch' in sys.modules or 'transformers' in sys.modules)"
    assert in_fresh_process(code).strip() == "False"


@pytest.mark.parametrize("name", smilex.__all__)
def test_every_public_name_resolves_and_says_what_it_is(name):
    value = getattr(smilex, name)
    assert value.__doc__
    assert value.__name__ == name
    assert name in dir(smilex)


def test_the_list_of_public_names_is_whole():
    assert sorted(set(smilex.__all__)) == list(smilex.__all__)
    assert set(smilex._HOMES) == set(smilex.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'smilex' has no attribute 'pretend'"):
        smilex.pretend  # noqa: B018 (reading it is the test)


def modules():
    found = pkgutil.walk_packages(smilex.__path__, "smilex.")
    return sorted(info.name for info in found if not info.name.endswith("__main__"))


@pytest.mark.parametrize("name", modules())
def test_every_module_imports(name):
    if name.startswith("smilex.integrations."):
        pytest.importorskip(name.rpartition(".")[2])
    assert importlib.import_module(name).__doc__


def test_every_module_imports_without_a_gpu():
    names = [name for name in modules() if not name.startswith("smilex.integrations.")]
    code = f"""
import os
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import importlib
for name in {names}:
    importlib.import_module(name)
import torch
print(torch.cuda.is_available())
"""
    assert in_fresh_process(code).strip() == "False"


def test_the_version_is_that_of_the_project(project):
    assert smilex.__version__ == project["version"]


def test_conda_asks_for_what_pyproject_asks_for(project):
    path = ROOT / "environment.yml"
    if not path.is_file():
        pytest.skip("there is no environment.yml")
    environment = yaml.safe_load(path.read_text(encoding="utf-8"))
    conda = requirements(entry for entry in environment["dependencies"] if isinstance(entry, str))
    assert conda.pop("python") == (">=", project["requires-python"].removeprefix(">="))
    conda.pop("pip")
    wanted = {
        normal(CONDA_NAMES.get(name, name)): bound for name, bound in requirements(project["dependencies"]).items()
    }
    assert conda == wanted
    by_pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    extras = set(re.findall(r"\[([^\]]+)\]", " ".join(by_pip))[0].split(","))
    assert extras <= set(project["optional-dependencies"])


def test_constraints_pin_every_dependency_to_one_version_that_fits(project):
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = requirements(line for line in lines if line.partition("#")[0].strip())
    assert all(operator == "==" for operator, _ in pins.values())
    everything = [*project["dependencies"], *(x for group in project["optional-dependencies"].values() for x in group)]
    wanted = requirements(everything)
    wanted.pop("smilex")
    for name, (operator, version) in wanted.items():
        assert name in pins, f"constraints.txt does not pin {name}"
        assert operator == ">=", f"{name} has no lower bound"
        assert pins[name][1] in SpecifierSet(f">={version}"), name
