"""What the resumable benchmarks share: finished cells on disk, a budget, and the arguments of the scripts.

A cell is one figure of a benchmark, or several that are made in one go: for example a method, a dataset and a seed. It
is a JSON object with the fields of its key, the settings that it was made with, and what came out.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from smilex.runs import versions, write_json

RESULTS = Path(__file__).parent / "results"

PRECISION = "bf16"
"""What encoders are trained in: faster than single precision, on CPUs with instructions for it."""

Cell = dict[str, Any]
Settings = dict[str, Any]
Key = Any
"""Which cell: a NamedTuple whose last field is the seed."""

Cells = dict[Key, Cell]


class Board:
    """Finished cells: whole in the work directory, summarised in the results.

    Parameters
    ----------
    results : Path
        JSON file with the cells of every machine.
    work_dir : Path
        Directory of this machine's cells.
    key : type
        NamedTuple whose fields name a cell.
    order : callable
        Key → what the cells of the results are sorted by.
    summary : callable, optional
        Cell → what of it goes into the results; by default all.
    """

    def __init__(
        self,
        results: Path,
        work_dir: Path,
        key: Any,
        order: Callable[[Key], Any],
        summary: Callable[[Cell], Cell] = lambda cell: cell,
    ) -> None:
        self.results = results
        self.work_dir = work_dir
        self._key = key
        self._order = order
        self._summary = summary
        (work_dir / "cells").mkdir(parents=True, exist_ok=True)
        results.parent.mkdir(parents=True, exist_ok=True)

    def cells(self) -> Cells:
        """Read the results."""
        return self._read(self.results)

    def recall(self, key: Key, settings: Settings) -> bool:
        """Whether a cell was made with these settings; take it into the results, and one of other settings out."""
        settings = json.loads(json.dumps(settings))
        known = [cell for cells in (self.cells(), self._own(key)) if (cell := cells.get(key))]
        for cell in known:
            if cell["settings"] == settings:
                self._merge({key: cell})
                return True
        if known:
            print(f"{' '.join(map(str, key))}: other settings now ({difference(known[0]['settings'], settings)})")
            self._merge({key: None})
        return False

    def add(self, key: Key, cell: Cell) -> None:
        """Keep a finished cell."""
        write_json(self._path(key), {"cells": [cell]})
        self._merge({key: self._summary(cell)})

    def _read(self, path: Path) -> Cells:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.is_file() else []
        return {self._key(*(cell[name] for name in self._key._fields)): cell for cell in cells}

    def _own(self, key: Key) -> Cells:
        return {key: self._summary(cell) for key, cell in self._read(self._path(key)).items()}

    def _path(self, key: Key) -> Path:
        *fields, seed = key
        return self.work_dir / "cells" / f"{'-'.join(map(str, fields))}-seed-{seed}.json"

    def _merge(self, changes: dict[Key, Cell | None]) -> None:
        before = self.cells()
        after = {key: cell for key, cell in (before | changes).items() if cell is not None}
        if after != before:
            write_json(self.results, {"cells": [after[key] for key in sorted(after, key=self._order)]})


def difference(before: Settings, now: Settings) -> str:
    """Say which settings changed."""
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return ", ".join(f"{name}: {before.get(name)} before, {now.get(name)} now" for name in names)


def run_cells(
    keys: Iterable[Key],
    settings_of: Callable[[Key], Settings],
    make: Callable[[Key], Cell],
    board: Board,
    budget: float | None,
) -> None:
    """Make the cells that are not finished, one after the other, until the budget is spent.

    Parameters
    ----------
    keys : iterable of keys
        The cells that are asked for, in order.
    settings_of : callable
        Key → whatever its figures depend on besides the seed, a JSON object.
    make : callable
        Key → its figures.
    board : Board
        Where finished cells are.
    budget : float or None
        Minutes after which no cell starts.
    """
    start = time.monotonic()
    for key in keys:
        settings = settings_of(key)
        if board.recall(key, settings):
            continue
        if budget is not None and (time.monotonic() - start) / 60 >= budget:
            print(f"the budget of {budget:g} minutes is spent")
            return
        began = time.monotonic()
        figures = make(key)
        seconds = round(time.monotonic() - began, 1)
        about = {"settings": settings, "cell_seconds": seconds, "versions": versions()}
        board.add(key, {**key._asdict(), **about, **figures})
        print(f"{' '.join(map(str, key))}: {seconds} s", flush=True)


def corpus_arguments(description: str | None, name: str) -> argparse.ArgumentParser:
    """Arguments of a benchmark that trains on a corpus and looks at what encoders know; `name` names its directory."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="nci5k", help="a file, or a built-in name as smilex.pretrain takes it")
    parser.add_argument(
        "--datasets", nargs="*", default=["bace", "bbbp", "esol", "lipophilicity"], help="what is read off the encoders"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=float, help="start no cell after this many minutes")
    parser.add_argument("--work-dir", type=Path, default=Path("runs") / name)
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    return parser


def encoder_arguments(description: str | None, name: str) -> argparse.ArgumentParser:
    """Arguments of a benchmark that trains encoders from scratch: those above, their size and passes."""
    parser = corpus_arguments(description, name)
    parser.add_argument("--model", default="tiny", help="size of the encoders")
    parser.add_argument("--epochs", type=float, default=20, help="times that every molecule is read in pretraining")
    return parser
