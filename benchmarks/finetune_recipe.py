"""Which pooling and which learning rate fine-tuning should use: judged on validation parts.

One encoder is pretrained on RDKit's NCI molecules, then fine-tuned with every combination on every dataset, with the
same splits and seeds. Figures of the validation part decide; those of the test part are written beside them. Each
finished cell is kept in the work directory, so that an interrupted run goes on where it stopped.

    python benchmarks/finetune_recipe.py --datasets nav17
    SMILEX_DATA=moleculenet python benchmarks/finetune_recipe.py --datasets nav17 esol bace_class bbbp
"""

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import smilex

RESULTS = Path(__file__).parent / "results"
POOLINGS = ("mean", "cls")
LEARNING_RATES = (5e-4, 1e-3)
# MoleculeNet's BACE has a class and a measured value: one dataset each.
TARGETS = {"bace_class": ("bace", "Class"), "bace_pic50": ("bace", "pIC50")}


def cell(dataset: str, encoder: Path, pooling: str, rate: float, arguments: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune one combination, or take its figures from an earlier run."""
    directory = arguments.work_dir / f"{dataset}-{pooling}-{rate:g}"
    if not (directory / "metrics.json").is_file():
        name, target = TARGETS.get(dataset, (dataset, None))
        smilex.finetune(
            name,
            directory,
            encoder,
            target=target,
            pooling=pooling,
            learning_rate=rate,
            seeds=arguments.seeds,
            epochs=arguments.epochs,
            patience=arguments.patience,
            progress=False,
        )
    metrics = json.loads((directory / "metrics.json").read_text())
    return {
        "dataset": dataset,
        "pooling": pooling,
        "learning_rate": rate,
        "valid": metrics["valid"]["summary"],
        "test": metrics["test"]["summary"],
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Print a Markdown table of the headline figure: ROC-AUC of classes, RMSE of measured values."""
    print("| dataset | pooling | learning rate | figure | validation | test |\n|---|---|---|---|---|---|")
    for row in rows:
        figure = "roc_auc" if "roc_auc" in row["valid"] else "rmse"
        shown = [f"{row[part][figure]['mean']:.3f} ± {row[part][figure]['sd'] or 0:.3f}" for part in ("valid", "test")]
        settings = (row["dataset"], row["pooling"], f"{row['learning_rate']:g}", figure, *shown)
        print(f"| {' | '.join(settings)} |")


def main() -> None:
    """Run every cell, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["nav17"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--patience", type=int, default=5)
    parser.add_argument("--pretraining-epochs", type=float, default=5)
    parser.add_argument("--work-dir", type=Path, default=Path("runs/finetune_recipe"))
    arguments = parser.parse_args()
    encoder = arguments.work_dir / "encoder"
    smilex.pretrain("nci5k", encoder, model="tiny", epochs=arguments.pretraining_epochs, resume=True, progress=False)
    rows = [
        cell(dataset, encoder, pooling, rate, arguments)
        for dataset, pooling, rate in product(arguments.datasets, POOLINGS, LEARNING_RATES)
    ]
    RESULTS.mkdir(exist_ok=True)
    settings = {"seeds": arguments.seeds, "epochs": arguments.epochs, "patience": arguments.patience}
    content = {"settings": settings, "pretraining_epochs": arguments.pretraining_epochs, "rows": rows}
    (RESULTS / "finetune_recipe.json").write_text(json.dumps(content, indent=2) + "\n")
    show(rows)


if __name__ == "__main__":
    main()
