import subprocess
import sys
from importlib.util import find_spec

import pytest


def run(code):
    return subprocess.run(
        [sys.executable, "-W", "default", "-c", code], capture_output=True, text=True, check=False, timeout=300
    )


def test_import_without_deepchem_says_how_to_get_it():
    code = """
import sys
sys.modules["deepchem"] = None  # as if it were not installed
import smilex.integrations
try:
    import smilex.integrations.deepchem
except ImportError as error:
    print(error.name, error)
"""
    result = run(code)
    assert result.returncode == 0, result.stderr
    (line,) = result.stdout.splitlines()
    assert line.startswith("deepchem smilex.integrations.deepchem needs DeepChem")
    assert "pip install 'smilex[deepchem]'" in line
    assert "Python < 3.12" in line


@pytest.mark.skipif(find_spec("deepchem") is None, reason="DeepChem is not installed")
def test_import_of_deepchem_is_silent_and_leaves_output_and_logging_as_they_were():
    code = """
import logging, sys
before = sys.stdout, sys.stderr, logging.root.manager.disable
import smilex.integrations.deepchem
assert before == (sys.stdout, sys.stderr, logging.root.manager.disable)
logging.getLogger("deepchem").warning("a later warning")
"""
    result = run(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    assert result.stderr == "a later warning\n"
