"""What the head should read: the mean over a molecule's tokens, or the first state of [CLS].

One encoder is pretrained on RDKit's NCI molecules, then fine-tuned both ways on every dataset, with the same splits
and seeds. Figures of the validation part decide; those of the test part are written beside them. Each finished cell is
kept in the work directory, so that an interrupted run goes on where it stopped.

    python benchmarks/pooling.py --datasets nav17
    SMILEX_DATA=moleculenet python benchmarks/pooling.py --datasets nav17 esol freesolv bace
"""

import argparse
import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import smilex
from smilex.runs import versions

RESULTS = Path(__file__).parent / "results"
POOLINGS = ("mean", "cls")


def cell(dataset: str, encoder: Path, pooling: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune one combination, or take its figures from an earlier run."""
    directory = arguments.work_dir / f"{dataset}-{pooling}"
    if not (directory / "metrics.json").is_file():
        shutil.rmtree(directory, ignore_errors=True)  # a cell that was cut off
        smilex.finetune(
            dataset,
            directory,
            encoder,
            pooling=pooling,
            learning_rate=arguments.learning_rate,
            batch_size=arguments.batch_size,
            seeds=arguments.seeds,
            epochs=arguments.epochs,
            patience=arguments.patience,
            progress=False,
        )
    metrics = json.loads((directory / "metrics.json").read_text())
    return {
        "dataset": dataset,
        "pooling": pooling,
        "valid": metrics["valid"]["summary"],
        "test": metrics["test"]["summary"],
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Print a Markdown table of the headline figure: ROC-AUC of classes, RMSE of measured values."""
    print("| dataset | pooling | figure | validation | test |\n|---|---|---|---|---|")
    for row in rows:
        figure = "roc_auc" if "roc_auc" in row["valid"] else "rmse"
        shown = [f"{row[part][figure]['mean']:.3f} ± {row[part][figure]['sd'] or 0:.3f}" for part in ("valid", "test")]
        print(f"| {' | '.join((row['dataset'], row['pooling'], figure, *shown))} |")


def main() -> None:
    """Run every cell, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["nav17"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--patience", type=int, default=5)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--pretraining-epochs", type=float, default=4)
    parser.add_argument("--work-dir", type=Path, default=Path("runs/pooling"))
    arguments = parser.parse_args()
    encoder = arguments.work_dir / "encoder"
    smilex.pretrain("nci5k", encoder, model="tiny", epochs=arguments.pretraining_epochs, resume=True, progress=False)
    rows = [cell(dataset, encoder, pooling, arguments) for dataset, pooling in product(arguments.datasets, POOLINGS)]
    RESULTS.mkdir(exist_ok=True)
    settings = {name: value for name, value in vars(arguments).items() if name != "work_dir"}
    content = {"settings": settings, "versions": versions(), "rows": rows}
    (RESULTS / "pooling.json").write_text(json.dumps(content, indent=2) + "\n")
    show(rows)


if __name__ == "__main__":
    main()
