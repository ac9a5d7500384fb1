import json
from types import SimpleNamespace
from typing import NamedTuple

import pytest


class Key(NamedTuple):
    method: str
    seed: int


KEYS = [Key("a", 0), Key("a", 1), Key("b", 0)]


@pytest.fixture
def bench(tmp_path):
    """`run` makes cells of a benchmark that gives out its settings; it returns those that were made."""
    import cells

    def board():
        return cells.Board(tmp_path / "results" / "x.json", tmp_path / "work", Key, lambda key: key)

    def run(settings, keys=KEYS, budget=None, make=lambda key: {"figure": [key.seed]}):
        made = []

        def counted(key):
            made.append(key)
            return make(key)

        cells.run_cells(keys, lambda _: settings, counted, board(), budget)
        return made

    return SimpleNamespace(run=run, board=board, cells=cells, path=tmp_path)


def test_finished_cells_are_not_made_again(bench):
    assert bench.run({"epochs": (1, 2)}, KEYS[:2]) == KEYS[:2]
    assert bench.run({"epochs": (1, 2)}) == KEYS[2:]
    made = bench.board().cells()
    assert list(made) == KEYS
    assert made[KEYS[1]]["figure"] == [1]
    assert made[KEYS[1]]["settings"] == {"epochs": [1, 2]}
    assert (bench.path / "work" / "cells" / "a-seed-1.json").is_file()


@pytest.mark.parametrize("lost", ["work/cells/a-seed-0.json", "results/x.json"])
def test_a_cell_needs_to_be_in_one_of_two_places(bench, lost):
    bench.run({})
    made = bench.board().cells()
    (bench.path / lost).unlink()
    assert bench.run({}) == []
    assert bench.board().cells() == made


def test_cells_of_other_settings_are_taken_out(bench, capsys):
    bench.run({"epochs": 1})
    capsys.readouterr()
    assert bench.run({"epochs": 2}, KEYS[:1], budget=0) == []
    assert "a 0: other settings now (epochs: 1 before, 2 now)" in capsys.readouterr().out
    assert list(bench.board().cells()) == KEYS[1:]
    assert bench.run({"epochs": 2}, KEYS[:1]) == KEYS[:1]


def test_a_cell_that_was_cut_off_leaves_nothing(bench):
    def cut(key):
        if key == KEYS[1]:
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        bench.run({}, make=cut)
    assert list(bench.board().cells()) == KEYS[:1]
    assert bench.run({}) == KEYS[1:]


def test_no_cell_starts_after_the_budget(bench, monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(bench.cells, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def slow(_):
        clock[0] += 50.0
        return {}

    assert bench.run({}, budget=1.5, make=slow) == KEYS[:2]
    assert "the budget of 1.5 minutes is spent" in capsys.readouterr().out
    assert [cell["cell_seconds"] for cell in bench.board().cells().values()] == [50.0, 50.0]
    assert json.loads((bench.path / "results" / "x.json").read_text())["cells"][1]["seed"] == 1
