"""MoleculeNet: smilex, with and without pretraining, beside ECFP4 + random forest and chemprop.

Every method learns from the same rows (DeepChem's scaffold split) with the same seeds. A cell is one dataset, method
and seed. Finished cells are kept in the work directory with all figures, and in results/moleculenet.json with their
means: whatever stands there with the same settings is not run again, on whichever machine it was made. Small datasets
come first, and the work can be cut into pieces by --budget. The encoders are those of moleculenet_encoders.py and
`smilex-small`, which smilex_small.py made. `--split chiral_scaffold` asks how much the figures owe to the split: it is
the one of many published figures, and has results of its own.

    pip install -e '.[benchmarks]'
    SMILEX_DATA=moleculenet python benchmarks/moleculenet.py --budget 60
"""

import argparse
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from cells import RESULTS, Board, Cell
from moleculenet_encoders import ENCODERS
from moleculenet_methods import MAX_LENGTH, SPLITS, Method, all_methods, load_problem
from moleculenet_report import NAMES, markdown, metric, plot

from smilex.data.properties import load_properties
from smilex.runs import versions, write_text

# From small to large.
SETS = ("freesolv", "esol", "sider", "clintox", "bace", "bbbp", "lipophilicity", "tox21", "toxcast", "muv")
METHODS = tuple(NAMES)


class Key(NamedTuple):
    """Which cell."""

    dataset: str
    method: str
    seed: int


def summary(cell: Cell) -> Cell:
    """Return a cell without the figures of each task, which run to hundreds of kilobytes."""
    parts = {
        part: {
            "mean": cell[part]["mean"],
            "tasks_scored": len(cell[part]["tasks"]),
            "tasks_skipped": len(cell[part]["skipped_tasks"]),
        }
        for part in ("valid", "test")
    }
    return cell | parts


def order(key: Key) -> tuple[int, int, int]:
    """Cheap cells first."""
    return SETS.index(key.dataset), METHODS.index(key.method), key.seed


def settings_of(dataset: str, method: Method, split: str = "scaffold") -> dict[str, Any]:
    """Whatever the figures of a cell depend on besides its seed."""
    shared = {"fingerprint": load_properties(dataset).fingerprint, "split": split, "max_length": MAX_LENGTH}
    return shared | method.settings(dataset)


def run(key: Key, seeds: Sequence[int], method: Method, settings: dict[str, Any], board: Board) -> None:
    """Train a method with one seed or several, and keep what came out once everything is done."""
    directory = board.work_dir / f"{key.dataset}-{key.method}"
    shutil.rmtree(directory, ignore_errors=True)  # a cell that was cut off
    problem = load_problem(key.dataset, settings["split"])
    start = time.monotonic()
    scores = method.train(problem, seeds, settings, directory)
    seconds = round((time.monotonic() - start) / len(seeds), 1)
    shutil.rmtree(directory, ignore_errors=True)
    used = versions() | ({"chemprop": version("chemprop")} if key.method == "chemprop" else {})
    for seed, parts in zip(seeds, scores, strict=True):
        own = key._replace(seed=seed)
        about = {"kind": problem.data.kind, "rows": problem.rows, "seconds": seconds, "versions": used}
        board.add(own, {**own._asdict(), "settings": settings, **about, **parts})
    figure = metric(key.dataset)
    values = ", ".join(f"{parts['test']['mean'][figure]:.3f}" for parts in scores)
    print(f"{key.dataset} {key.method} seeds {list(seeds)}: test {figure} {values}, {seconds} s a seed", flush=True)


def batches(seeds: Iterable[int], method: Method) -> Iterator[list[int]]:
    """Seeds that are trained in one go."""
    yield from [list(seeds)] if method.seeds_together else [[seed] for seed in seeds]


def run_all(arguments: argparse.Namespace, board: Board) -> None:
    """Run the cells that are asked for and not finished, until the budget is spent."""
    start = time.monotonic()
    methods = all_methods(arguments.encoders, arguments.model)
    for name in arguments.methods:
        if methods[name].lacks:
            print(f"without {name}: {methods[name].lacks}")
    for dataset in sorted(arguments.datasets, key=SETS.index):
        for name in sorted(arguments.methods, key=METHODS.index):
            method = methods[name]
            if method.lacks:
                continue
            settings = settings_of(dataset, method, arguments.split)
            for seeds in batches(range(arguments.seeds), method):
                keys = [Key(dataset, name, seed) for seed in seeds]
                done = [board.recall(key, settings) for key in keys]
                if all(done):
                    continue
                if arguments.budget is not None and (time.monotonic() - start) / 60 >= arguments.budget:
                    print(f"the budget of {arguments.budget:g} minutes is spent")
                    return
                run(keys[0], seeds, method, settings, board)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing; write and print the table, and draw the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", choices=SETS, default=SETS, metavar="SET")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, metavar="METHOD")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--model", default="tiny", help="size of the encoder from scratch; that of the pretrained ones")
    parser.add_argument("--encoders", type=Path, default=ENCODERS, help="directory of the pretrained ones")
    parser.add_argument("--budget", type=float, help="start no cell after this many minutes")
    parser.add_argument("--split", choices=SPLITS, default="scaffold")
    parser.add_argument("--work-dir", type=Path, help="default runs/moleculenet, or that of another split")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    chosen = parser.parse_args(arguments)
    if chosen.seeds < 1:
        parser.error(f"--seeds must be at least 1, not {chosen.seeds}")
    name = "moleculenet" if chosen.split == "scaffold" else f"moleculenet_{chosen.split}"
    board = Board(RESULTS / f"{name}.json", chosen.work_dir or Path("runs") / name, Key, order, summary)
    if not chosen.report_only:
        run_all(chosen, board)
    cells = board.cells().values()
    table = markdown(cells, chosen.split)
    write_text(RESULTS / f"{name}.md", table)
    plot(cells, RESULTS / f"{name}.png")
    print(table)


if __name__ == "__main__":
    main()
