"""A tour of smilex in five minutes on two cores: pretrain, fine-tune, compare with baselines, fill a mask.

All molecules are inside RDKit's own package. Copy from here what you need.
"""

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import smilex
from smilex.baselines import ecfp4_random_forest, predict_mean
from smilex.data.properties import load_properties
from smilex.data.splits import split
from smilex.metrics import evaluate, summarize
from smilex.report.tables import fillings, mean_sd, table
from smilex.runs import write_json
from smilex.terminal import say, show, step

CORPUS = "nci5k"
DATASET = "nav17"
MODEL = "tiny"

PRETRAINING_EPOCHS = 3
FINETUNING_EPOCHS = 5
BATCH_SIZE = 16
LEARNING_RATE = 1e-3
SEEDS = 3
TREES = 100
"""The budget: together under five minutes on two cores, so that the networks are far from trained to the end."""

MASKED_ASPIRIN = "CC(=O)Oc1ccccc1C(=O)[MASK]"


def run_demo(output_dir: str | Path = "demo-run", *, progress: bool = True) -> dict[str, Any]:
    """Run the tour; say on stderr what is being done, and print the results to stdout.

    Parameters
    ----------
    output_dir : str or Path, default "demo-run"
        Directory to make; where it exists, the next free number is added to its name.
    progress : bool, default True
        Show progress bars on stderr.

    Returns
    -------
    dict
        Figures on the test part: predictor → metric → {"mean", "sd", "n"}, also written to results.json.

    Raises
    ------
    SmilexError
        If the directory cannot be written.
    """
    directory = _new_directory(Path(output_dir))
    pretrained, from_scratch, fine_tuned = (directory / name for name in ("pretrained", "from-scratch", "fine-tuned"))

    with step(f"1/5 pretraining a {MODEL} ExLM on the molecules of {CORPUS}, without labels"):
        smilex.pretrain(CORPUS, pretrained, model=MODEL, epochs=PRETRAINING_EPOCHS, progress=progress)

    results: dict[str, Mapping[str, Any]] = {}
    with step("2/5 baselines: the mean, and a random forest on ECFP4 fingerprints"):
        results |= _baselines()

    recipe: dict[str, Any] = {
        "split": "scaffold",
        "seeds": SEEDS,
        "epochs": FINETUNING_EPOCHS,
        "batch_size": BATCH_SIZE,
        "learning_rate": LEARNING_RATE,
        "progress": progress,
    }
    with step(f"3/5 training a {MODEL} ExLM on {DATASET} from scratch, {SEEDS} seeds"):
        run = smilex.finetune(DATASET, from_scratch, encoder=None, model=MODEL, **recipe)
        results["ExLM from scratch"] = run.metrics

    with step(f"4/5 fine-tuning the pretrained ExLM on {DATASET}, {SEEDS} seeds"):
        run = smilex.finetune(DATASET, fine_tuned, encoder=pretrained, **recipe)
        results["ExLM pretrained"] = run.metrics

    with step("5/5 completing aspirin, one atom of which is masked"):
        completions = smilex.fill_mask(MASKED_ASPIRIN, encoder=pretrained, top_k=5)

    write_json(directory / "results.json", results)
    tested = run.report["rows"]["test"]
    show(
        f"{DATASET}, {tested} test molecules with scaffolds not seen in training; mean ± sd over {SEEDS} seeds",
        table(
            ("predictor", "test RMSE", "test R²"),
            [(name, mean_sd(figures["rmse"]), mean_sd(figures["r2"])) for name, figures in results.items()],
        ),
        *fillings(MASKED_ASPIRIN, completions),
        f"plots: {pretrained / 'loss.png'}, {from_scratch / 'parity.png'}, {fine_tuned / 'parity.png'}",
        f"figures: {directory / 'results.json'}; predictions: {fine_tuned / 'predictions.csv'}",
        f"next: echo 'CCO' | smilex predict {fine_tuned} -",
    )
    return results


def _baselines() -> dict[str, Mapping[str, Any]]:
    """Score what needs no network, on the split that `smilex.finetune` uses."""
    data = load_properties(DATASET)
    parts = split(data.smiles, "scaffold")
    train, test = ([data.smiles[row] for row in part] for part in (parts.train, parts.test))
    labels, truth = data.targets[parts.train], data.targets[parts.test]
    forests = [ecfp4_random_forest(train, labels, test, data.kind, n_trees=TREES, seed=seed) for seed in range(SEEDS)]
    predictions = {"mean of the training labels": [predict_mean(labels, test)], "ECFP4 + random forest": forests}
    return {
        name: summarize([evaluate(data.kind, truth, predicted, data.task_names)["mean"] for predicted in runs])
        for name, runs in predictions.items()
    }


def _new_directory(wanted: Path) -> Path:
    """Return `wanted`, or the next free name where it exists: a second tour should not need a second thought."""
    if not wanted.exists():
        return wanted
    free = next(path for number in count(2) if not (path := wanted.with_name(f"{wanted.name}-{number}")).exists())
    say(f"{wanted} exists: writing to {free}")
    return free
