"""What each setting of fine-tuning is worth: one base recipe, then every setting changed alone.

Figures of the validation part decide; those of the test part are written beside them. A cell is one change on one
dataset with all seeds. Finished cells are kept in the work directory, so that an interrupted run goes on where it
stopped; any part of the cells can be run, now or later.

    python benchmarks/finetuning_ablation.py --encoder runs/nci --datasets nav17
    SMILEX_DATA=moleculenet python benchmarks/finetuning_ablation.py --encoder runs/nci --budget 60
"""

import argparse
import hashlib
import json
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import smilex
from smilex.data.properties import load_properties
from smilex.runs import versions, write_json

RESULT = Path(__file__).parent / "results" / "finetuning_ablation.json"
BASE = "base"
BASE_SETTINGS: dict[str, Any] = {
    "pooling": "mean",
    "batch_size": 32,
    "learning_rate": 5e-4,
    "layer_decay": 1.0,
    "dropout": 0.1,
    "balance_classes": False,
    "random_smiles": False,
    "averaged_smiles": 1,
    "precision": "bf16",
}
CHANGES: dict[str, dict[str, Any]] = {
    BASE: {},
    "classes balanced": {"balance_classes": True},
    "layer decay 0.8": {"layer_decay": 0.8},
    "dropout 0": {"dropout": 0.0},
    "dropout 0.2": {"dropout": 0.2},
    "random SMILES": {"random_smiles": True},
    "random SMILES, 8 averaged": {"random_smiles": True, "averaged_smiles": 8},
    "batches of 16": {"batch_size": 16},
    "batches of 64": {"batch_size": 64},
    "learning rate 2.5e-4": {"learning_rate": 2.5e-4},
    "learning rate 1e-3": {"learning_rate": 1e-3},
    "pooling cls": {"pooling": "cls"},
}
Cells = dict[str, dict[str, dict[str, Any]]]
"""Change → dataset → what came out."""


def settings_of_run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Whatever cells must share to be compared."""
    weights = hashlib.sha256((arguments.encoder / "model.safetensors").read_bytes()).hexdigest()
    shared = {name: getattr(arguments, name) for name in ("seeds", "epochs", "patience", "split")}
    return {"encoder": arguments.encoder.name, "encoder_sha256": weights, **shared, "base": BASE_SETTINGS}


def run_cell(change: str, dataset: str, arguments: argparse.Namespace) -> None:
    """Fine-tune, and write what came out into the work directory once everything is done."""
    name = f"{dataset}-{change.replace(' ', '-').replace(',', '')}"
    directory, result = arguments.work_dir / name, arguments.work_dir / f"{name}.json"
    shutil.rmtree(directory, ignore_errors=True)  # a cell that was cut off
    start = time.monotonic()
    tuned = smilex.finetune(
        dataset,
        directory,
        arguments.encoder,
        split=arguments.split,
        seeds=arguments.seeds,
        epochs=arguments.epochs,
        patience=arguments.patience,
        **BASE_SETTINGS | CHANGES[change],
        progress=False,
    )
    parts = {part: tuned.report["metrics"][part]["summary"] for part in ("valid", "test")}
    seconds = round(time.monotonic() - start)
    write_json(result, {"change": change, "dataset": dataset, "seconds": seconds, **parts})


def finished(work_dir: Path) -> Cells:
    """Read every finished cell."""
    cells: Cells = {change: {} for change in CHANGES}
    for path in sorted(work_dir.glob("*-*.json")):
        cell = json.loads(path.read_text())
        cells.setdefault(cell["change"], {})[cell["dataset"]] = cell
    return cells


def headline(cell: dict[str, Any], part: str) -> tuple[float | None, float, bool]:
    """Mean and spread of ROC-AUC or RMSE, and whether more is better; no mean where the part has one class only."""
    classes = "roc_auc" in cell[part]
    figure = cell[part]["roc_auc" if classes else "rmse"]
    return figure["mean"], figure["sd"] or 0.0, classes


def gain(cells: Cells, change: str, part: str) -> float | None:
    """Mean over the datasets of the relative change against the base; above 0 is better."""
    gains = []
    for dataset, cell in cells[change].items():
        if dataset in cells[BASE]:
            (base, _, classes), (value, _, _) = headline(cells[BASE][dataset], part), headline(cell, part)
            if base is not None and value is not None:
                gains.append((value - base if classes else base - value) / base)
    return statistics.fmean(gains) if gains else None


def show(cells: Cells) -> None:
    """Print a Markdown table: for each dataset the figure of the validation part, and that of the test part."""
    datasets = sorted({dataset for row in cells.values() for dataset in row})
    print("ROC-AUC (more is better) or RMSE (less is better): validation part, test part in parentheses\n")
    print(f"| change | {' | '.join(datasets)} | gain | gain, test |\n|{'---|' * (len(datasets) + 3)}")
    for change, row in cells.items():
        shown = []
        for dataset in datasets:
            figures = [headline(row[dataset], part) for part in ("valid", "test")] if dataset in row else []
            texts = ["–" if mean is None else f"{mean:.3f} ± {spread:.3f}" for mean, spread, _ in figures]
            shown.append(f"{texts[0]} ({texts[1]})" if texts else "")
        for part in ("valid", "test"):
            value = gain(cells, change, part)
            shown.append("" if value is None else f"{value:+.1%}")
        print(f"| {change} | {' | '.join(shown)} |")


def merge(cells: Cells, settings: dict[str, Any]) -> Cells:
    """Write the finished cells beside those of earlier runs with the same settings, and return both."""
    known = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    if known.get("settings") == settings:
        for cell in known["cells"]:
            cells.setdefault(cell["change"], {}).setdefault(cell["dataset"], cell)
    rows = [cell for row in cells.values() for cell in row.values()]
    RESULT.parent.mkdir(exist_ok=True)
    write_json(RESULT, {"settings": settings, "versions": versions(), "cells": rows})
    return cells


def main() -> None:
    """Run the cells that are asked for and not finished; write and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", type=Path, required=True, help="directory of a pretrained encoder")
    parser.add_argument("--datasets", nargs="+", default=["bace", "esol", "freesolv", "bbbp"])
    parser.add_argument("--changes", nargs="+", default=list(CHANGES), choices=list(CHANGES), metavar="CHANGE")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--patience", type=int, default=8)
    parser.add_argument("--split", default="scaffold")
    parser.add_argument("--budget", type=float, help="start no cell after this many minutes")
    parser.add_argument("--work-dir", type=Path, default=Path("runs/finetuning_ablation"))
    arguments = parser.parse_args()
    settings = settings_of_run(arguments)
    arguments.work_dir.mkdir(parents=True, exist_ok=True)
    known = arguments.work_dir / "settings.json"
    if known.is_file() and json.loads(known.read_text()) != settings:
        parser.error(f"{arguments.work_dir} holds cells of other settings: name another --work-dir")
    write_json(known, settings)
    start = time.monotonic()
    kinds = {dataset: load_properties(dataset).kind for dataset in arguments.datasets}
    for change in arguments.changes:
        for dataset in arguments.datasets:
            spent = (time.monotonic() - start) / 60
            no_classes = "balance_classes" in CHANGES[change] and kinds[dataset] == "regression"
            done = dataset in finished(arguments.work_dir)[change]
            if not (no_classes or done) and (arguments.budget is None or spent < arguments.budget):
                run_cell(change, dataset, arguments)
                merge(finished(arguments.work_dir), settings)
    show(merge(finished(arguments.work_dir), settings))


if __name__ == "__main__":
    main()
