import ast
import re
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
PLACES = re.compile(r"/(tmp|home|root|Users|site-packages)/|\b0x[0-9a-f]{6,}")
"""What a text has that only holds on the machine where it was written."""


def read(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def needs_deepchem(notebook):
    return any("deepchem" in cell.source for cell in code_cells(notebook))


def texts(output):
    """What an output says; pictures say nothing."""
    if output.output_type == "stream":
        return [output.text]
    return [text for form, text in output.data.items() if form.startswith("text/")]


def kinds(cell):
    """What a cell shows: streams by name, results by their forms, such as text/html or image/png."""
    return [output.get("name") or sorted(output.data) for output in cell.outputs]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return read(request.param)


def test_the_notebooks_are_there():
    assert [path.name for path in NOTEBOOKS] == [
        "01_pretrain_finetune.ipynb",
        "02_deepchem_pipeline.ipynb",
        "03_objectives.ipynb",
        "04_embeddings.ipynb",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_stays_small(path):
    assert path.stat().st_size < 1_000_000


def test_outputs_are_kept_from_one_run_from_top_to_bottom(notebook):
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert sum("text/html" in kind or "image/png" in kind for cell in cells for kind in kinds(cell)) >= 4


def test_kept_outputs_are_results_without_errors_warnings_and_places(notebook):
    for cell in code_cells(notebook):
        for output in cell.outputs:
            assert output.output_type != "error"
            assert not any(PLACES.search(text) for text in texts(output))
            if output.get("name") == "stderr":  # how DeepChem reports rows that it leaves out
                assert all(line.startswith("Failed to featurize datapoint") for line in output.text.splitlines())


def test_every_code_cell_parses_and_its_imports_resolve(notebook):
    if needs_deepchem(notebook) and not find_spec("deepchem"):
        pytest.skip("DeepChem is not installed; it needs Python < 3.12")
    nodes = [node for cell in code_cells(notebook) for node in ast.parse(cell.source).body]
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    assert imports
    exec(compile(ast.Module(imports, []), "imports", "exec"), {})  # noqa: S102 (the cells of this repository)


@pytest.mark.slow
def test_a_notebook_runs_and_shows_what_it_kept(notebook, tmp_path, monkeypatch):
    if needs_deepchem(notebook) and not find_spec("deepchem"):
        pytest.skip("DeepChem is not installed; it needs Python < 3.12")
    for variable in ("TMPDIR", "SMILEX_CACHE", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
        (tmp_path / variable).mkdir()
    (tmp_path / "work").mkdir()
    kept = [kinds(cell) for cell in code_cells(notebook)]
    place = {"metadata": {"path": str(tmp_path / "work")}}
    NotebookClient(notebook, timeout=900, kernel_name="python3", coalesce_streams=True, resources=place).execute()
    assert [kinds(cell) for cell in code_cells(notebook)] == kept
    assert not list((tmp_path / "work").iterdir())
