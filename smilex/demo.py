"""A tour of smilex in three minutes on two cores: fine-tune the encoder of the package, beside simpler predictors.

All molecules are inside RDKit's own package. Copy from here what you need.
"""

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import smilex
from smilex import DEFAULT_ENCODER
from smilex.baselines import ecfp4_random_forest, predict_mean
from smilex.data.properties import load_properties
from smilex.data.splits import split
from smilex.finetuning import FinetuneResult
from smilex.metrics import evaluate, summarize
from smilex.report.tables import fillings, mean_sd, table
from smilex.runs import write_json
from smilex.terminal import say, show, step

DATASET = "nav17"
SEEN = (
    f"Of the 1017 molecules of nav17, {DEFAULT_ENCODER} has read 117 before, 11 of them in the test part: "
    "structures alone, no activities."
)
"""Counted by canonical SMILES in the corpus that benchmarks/pretraining_corpus.py wrote."""

MODEL = "tiny"
"""The size of `smilex-small`, so that from-scratch networks differ from it in their weights alone."""

FINETUNING_EPOCHS = 4
BATCH_SIZE = 16
LEARNING_RATE = 1e-3
SEEDS = 3
TREES = 100
"""The budget: two minutes on two cores, so that the networks are far from trained to the end."""

CORPUS = "nci5k"
PRETRAINING_EPOCHS = 3
MASKED_ASPIRIN = "CC(=O)Oc1ccccc1C(=O)[MASK]"

Figures = dict[str, dict[str, Mapping[str, Any]]]
"""Predictor → "valid" and "test" → metric → {"mean", "sd", "n"} over the seeds."""


def run_demo(
    output_dir: str | Path = "demo-run", *, pretrain: bool = False, progress: bool = True
) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Run the tour; say on stderr what is being done, and print the results to stdout.

    Parameters
    ----------
    output_dir : str or Path, default "demo-run"
        Directory to make; where it exists, the next free number is added to its name.
    pretrain : bool, default False
        Pretrain an encoder, too, fine-tune it like the others, and let it complete a molecule with a mask.
    progress : bool, default True
        Show progress bars on stderr.

    Returns
    -------
    dict
        Predictor → "valid" and "test", the parts → metric → {"mean", "sd", "n"}, also written to results.json.

    Raises
    ------
    SmilexError
        If the directory cannot be written.
    """
    directory = _new_directory(Path(output_dir))
    steps = 7 if pretrain else 4
    common: dict[str, Any] = {"split": "scaffold", "seeds": SEEDS, "progress": progress}
    recipe = {"epochs": FINETUNING_EPOCHS, "batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE, **common}

    with step(f"1/{steps} baselines: the mean, and a random forest on ECFP4 fingerprints"):
        results = _baselines()

    with step(f"2/{steps} training an ExLM of the size of {DEFAULT_ENCODER} on {DATASET} from scratch, {SEEDS} seeds"):
        run = smilex.finetune(DATASET, directory / "from-scratch", encoder=None, model=MODEL, **recipe)
        results["ExLM from scratch"] = _both_parts(run)

    with step(f"3/{steps} fine-tuning {DEFAULT_ENCODER}, which is pretrained, on {DATASET}, {SEEDS} seeds"):
        run = smilex.finetune(DATASET, directory / "fine-tuned", **recipe)
        results[f"{DEFAULT_ENCODER} fine-tuned"] = _both_parts(run)

    with step(f"4/{steps} scikit-learn on the vectors of {DEFAULT_ENCODER}, which stays frozen"):
        run = smilex.finetune(DATASET, directory / "frozen-linear", head="linear", **common)
        results[f"{DEFAULT_ENCODER} + linear model"] = _both_parts(run)
        run = smilex.finetune(DATASET, directory / "frozen-forest", head="random_forest", **common)
        results[f"{DEFAULT_ENCODER} + random forest"] = _both_parts(run)

    if pretrain:
        completions = _pretrain(directory, results, recipe)
    write_json(directory / "results.json", results)
    show(*_summary(directory, results, run.report["rows"]), *(completions if pretrain else ()))
    return results


def _both_parts(run: FinetuneResult) -> dict[str, Mapping[str, Any]]:
    return {part: run.report["metrics"][part]["summary"] for part in ("valid", "test")}


def _baselines() -> Figures:
    """Score what needs no network, on the split that `smilex.finetune` uses."""
    data = load_properties(DATASET)
    parts = split(data.smiles, "scaffold").parts()
    smiles = {name: [data.smiles[row] for row in rows] for name, rows in parts.items()}
    train, labels = smiles["train"], data.targets[parts["train"]]

    def scores(part: str, predictions: list[Any]) -> Mapping[str, Any]:
        truth = data.targets[parts[part]]
        return summarize([evaluate(data.kind, truth, predicted, data.task_names)["mean"] for predicted in predictions])

    results: Figures = {"mean of the training labels": {}, "ECFP4 + random forest": {}}
    asked = [*smiles["valid"], *smiles["test"]]
    forests = [ecfp4_random_forest(train, labels, asked, data.kind, n_trees=TREES, seed=seed) for seed in range(SEEDS)]
    for part, rows in (("valid", slice(len(smiles["valid"]))), ("test", slice(len(smiles["valid"]), None))):
        results["mean of the training labels"][part] = scores(part, [predict_mean(labels, smiles[part])])
        results["ECFP4 + random forest"][part] = scores(part, [predicted[rows] for predicted in forests])
    return results


def _pretrain(directory: Path, results: Figures, recipe: Mapping[str, Any]) -> list[Any]:
    """Pretrain an encoder, add the figures of fine-tuning it, and return what to show of its completions."""
    pretrained = directory / "pretrained"
    with step(f"5/7 pretraining a {MODEL} ExLM on the molecules of {CORPUS}, without labels"):
        smilex.pretrain(CORPUS, pretrained, model=MODEL, epochs=PRETRAINING_EPOCHS, progress=recipe["progress"])
    with step(f"6/7 fine-tuning it on {DATASET}, {SEEDS} seeds"):
        run = smilex.finetune(DATASET, directory / "pretrained-fine-tuned", encoder=pretrained, **recipe)
        results["ExLM pretrained here"] = _both_parts(run)
    with step("7/7 completing aspirin, one atom of which is masked"):
        completions = smilex.fill_mask(MASKED_ASPIRIN, encoder=pretrained, top_k=5)
    return [*fillings(MASKED_ASPIRIN, completions), f"loss: {pretrained / 'loss.png'}"]


def _summary(directory: Path, results: Figures, rows: Mapping[str, Any]) -> list[Any]:
    """Lay out the figures, what pretraining has changed, and where things lie."""
    scratch, tuned = (results[name] for name in ("ExLM from scratch", f"{DEFAULT_ENCODER} fine-tuned"))
    valid, test = (tuned[part]["rmse"]["mean"] - scratch[part]["rmse"]["mean"] for part in ("valid", "test"))
    fine_tuned = directory / "fine-tuned"
    title = (
        f"{DATASET}, {rows['valid']} validation and {rows['test']} test molecules with scaffolds not seen in training; "
        f"mean ± sd over {SEEDS} seeds"
    )
    difference = (
        f"{DEFAULT_ENCODER} in place of random weights changes the RMSE of the network by {valid:+.3f} on the "
        f"validation and {test:+.3f} on the test part."
    )
    figures = [
        (name, *map(mean_sd, (parts["valid"]["rmse"], parts["test"]["rmse"], parts["test"]["r2"])))
        for name, parts in results.items()
    ]
    return [
        title,
        table(("predictor", "valid RMSE", "test RMSE", "test R²"), figures),
        difference,
        SEEN,
        f"plots: {directory / 'from-scratch' / 'parity.png'}, {fine_tuned / 'parity.png'}",
        f"figures: {directory / 'results.json'}; predictions: {fine_tuned / 'predictions.csv'}",
        f"next: echo 'CCO' | smilex predict {fine_tuned} -",
    ]


def _new_directory(wanted: Path) -> Path:
    """Return `wanted`, or the next free name where it exists: a second tour should not need a second thought."""
    if not wanted.exists():
        return wanted
    free = next(path for number in count(2) if not (path := wanted.with_name(f"{wanted.name}-{number}")).exists())
    say(f"{wanted} exists: writing to {free}")
    return free
