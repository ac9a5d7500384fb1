from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks_on_the_path(monkeypatch):
    """The scripts import each other as they do when they are run."""
    monkeypatch.syspath_prepend(BENCHMARKS)
