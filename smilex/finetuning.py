"""Fine-tuning an encoder on measured properties of molecules."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from smilex import DEFAULT_ENCODER
from smilex.checks import count, folder
from smilex.data import splits
from smilex.data.properties import PropertyDataset, load_properties
from smilex.data.rows import encode_rows, warn_invalid
from smilex.errors import SmilexError
from smilex.frozen import settings_in_use, train_heads
from smilex.metrics import evaluate, summarize
from smilex.modeling.loading import find_encoder, is_directory
from smilex.precision import Precision
from smilex.prediction import check_task_names, prediction_table
from smilex.processes import refuse_many_processes
from smilex.property_task import PropertyTask
from smilex.property_training import check_precision, property_config, train_networks, varied
from smilex.recipe import Recipe
from smilex.report.plots import plot_parity, plot_roc
from smilex.runs import Run, versions, write_json
from smilex.tokenization import SmilesTokenizer
from smilex.writing import write_text


@dataclass(frozen=True)
class FinetuneResult:
    """What fine-tuning made.

    Parameters
    ----------
    output_dir : Path
        Directory for `smilex.predict`.
    metrics : dict
        Figures on the test part: metric → {"mean", "sd", "n"} over seeds.
    predictions : pandas.DataFrame
        One row per row of the dataset, in order: smiles, part, measured values, predictions, spread, error.
    report : dict
        Content of report.json.
    """

    output_dir: Path
    metrics: dict[str, Any]
    predictions: pd.DataFrame
    report: dict[str, Any]


def finetune(
    dataset: pd.DataFrame | str | os.PathLike[str],
    output_dir: str | Path,
    encoder: str | Path | None = DEFAULT_ENCODER,
    *,
    head: Literal["network", "linear", "random_forest"] = "network",
    model: str | None = None,
    smiles_column: str | None = None,
    target: str | Sequence[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    split: splits.SplitMethod = "scaffold",
    split_column: str | None = None,
    pooling: Literal["mean", "cls"] = "mean",
    seeds: int = 3,
    epochs: int = Recipe.epochs,
    patience: int = Recipe.patience,
    batch_size: int = Recipe.batch_size,
    learning_rate: float = Recipe.learning_rate,
    layer_decay: float = Recipe.layer_decay,
    dropout: float | None = Recipe.dropout,
    balance_classes: bool = Recipe.balance_classes,
    random_smiles: bool = Recipe.random_smiles,
    averaged_smiles: int = Recipe.averaged_smiles,
    precision: Precision | None = Recipe.precision,
    progress: bool = True,
) -> FinetuneResult:
    """Fine-tune an encoder on measured properties and test it on molecules it has not seen.

    Parameters
    ----------
    dataset : DataFrame, path or str
        A table with SMILES and labels, a .csv, .tsv or .parquet file, "nav17", or the name of a MoleculeNet set. All
        targets are numbers (regression) or all are 0 and 1 (classification); labels may be missing.
    output_dir : str or Path
        Directory to make: a model for each seed, predictions.csv, metrics.json, report.json and plots.
    encoder : str, Path or None, default "smilex-small"
        Directory of a pretrained model, or the name of one that ships with the package; None starts from scratch.
    head : {"network", "linear", "random_forest"}, default "network"
        What predicts from the encoder's vectors. "network" trains a small head together with the encoder. The others
        leave the encoder as it is, embed each molecule once and fit an estimator of scikit-learn a task, which suits
        few molecules: "linear" is Ridge or LogisticRegression on standardised vectors, with the regularisation that
        does best on the validation part; "random_forest" has 300 trees. Of the settings below that say how to train,
        only `balance_classes` goes with them.
    model : {"tiny", "small", "base"}, optional
        Size of an encoder from scratch, with ``encoder=None`` alone; "small" by default.
    smiles_column, target, data_dir : optional
        As in `smilex.data.properties.load_properties`.
    split : str, default "scaffold"
        How 80 % of the molecules become the training, 10 % the validation and 10 % the test part: "scaffold",
        "balanced_scaffold", "random", "stratified", "column" or "time", see `smilex.data.splits.split`. The scaffold
        split is DeepChem's: its test molecules have other frameworks than those of training.
    split_column : str, optional
        The column of the table that "column" and "time" follow.
    pooling : {"mean", "cls"}, default "mean"
        What the head reads: the mean over the molecule's tokens, or the first state of [CLS].
    seeds : int, default 3
        Models to train, with seeds 0, 1, …; they differ in the head's weights, the order of the molecules and dropout,
        or in the trees of the forests. A linear head holds no chance and is fitted once.
    epochs, patience : int, default 50 and 10
        Passes over the training part at most, and passes without progress on the validation part after which training
        stops: in the mean squared error of standardised targets, or in ROC-AUC (among equals, in cross-entropy). The
        weights of the best pass are kept.
    batch_size : int, default 32
        Molecules in a batch.
    learning_rate : float, default 5e-4
        Peak of the schedule: linear warm-up over 10 % of the run, then linear decay.
    layer_decay : float, default 1.0
        What the learning rate is multiplied by from the head to the last layer, and from each layer to the one below;
        the embedding has the lowest. Below 1 a pretrained encoder changes less.
    dropout : float, optional
        Dropout of the encoder and the head while fine-tuning; by default that of the encoder's configuration.
    balance_classes : bool, default False
        Of classes: weigh the labels of 1 of each task by its ratio of 0s to 1s in the training part (at most 100), so
        that both classes count the same. Probabilities are shifted by it: 0.5 then says that a molecule is as likely
        under one class as under the other, however rare the class is. Measured values have no classes.
    random_smiles : bool, default False
        Train on another random SMILES of each molecule in each epoch [1]_, in place of the canonical one.
    averaged_smiles : int, default 1
        Above 1, each prediction is the mean over this many SMILES of the molecule, the canonical one and random ones:
        here and in whatever predicts with the model later.
    precision : {"fp32", "bf16"}, optional
        Arithmetic of training, as in `smilex.pretrain`; the figures and predictions are those of the saved model in
        single precision.
    progress : bool, default True
        Show progress bars on stderr.

    Returns
    -------
    FinetuneResult

    Raises
    ------
    SmilexError
        If the dataset, a setting, the encoder or the output directory cannot be used.

    References
    ----------
    .. [1] Bjerrum, arXiv 1703.07076; for training and averaging: Kimber et al., arXiv 2107.05556.

    Examples
    --------
    >>> import tempfile
    >>> table = pd.DataFrame({"smiles": ["C" * n + "O" for n in range(1, 21)], "carbons": range(1, 21)})
    >>> result = finetune(table, tempfile.mkdtemp(), None, model="tiny", split="random", seeds=1, epochs=1,
    ...                   progress=False)
    >>> sorted(result.metrics), len(result.predictions)
    (['mae', 'r2', 'rmse', 'spearman'], 20)
    """
    recipe = Recipe(
        epochs=epochs,
        patience=patience,
        batch_size=batch_size,
        learning_rate=learning_rate,
        layer_decay=layer_decay,
        dropout=dropout,
        balance_classes=balance_classes,
        random_smiles=random_smiles,
        averaged_smiles=averaged_smiles,
        precision=precision,
    )
    refuse_many_processes("fine-tuning")
    head_settings = settings_in_use(head, encoder, recipe)
    train = partial(train_networks, progress=progress) if head == "network" else partial(train_heads, head)
    seeds = count("seeds", seeds)
    output_dir = folder("output_dir", output_dir)
    if is_directory(output_dir) and (output_dir / "settings.json").is_file():
        raise SmilexError(f"{output_dir} already holds a run: name another directory")
    data = load_properties(
        dataset, smiles_column=smiles_column, target=target, data_dir=data_dir, split_column=split_column
    )
    check_task_names(data.task_names)
    source = None if encoder is None else find_encoder(encoder)
    config = property_config(data, source, model, pooling, recipe)
    task = _prepare(data, split, config.max_position_embeddings)
    settings = {
        "dataset": {"name": data.name, "fingerprint": data.fingerprint, "tasks": data.task_names},
        "encoder": None if encoder is None else str(encoder),
        "model": config.own_fields(),
        "head": head,
        "split": split,
        "seeds": seeds,
        **head_settings,
    }
    with Run.open(output_dir, settings, resume=False) as run:
        predictions = train(task, config, source, recipe, run.directory, seeds)
        return _conclude(run, task, predictions)


def _prepare(data: PropertyDataset, method: splits.SplitMethod, max_length: int) -> PropertyTask:
    """Tokenise and split; rows that are no molecule, or too long, are reported and belong to no part."""
    rows = encode_rows(data.smiles, SmilesTokenizer(), max_length=max_length)
    warn_invalid(rows.invalid, len(data))
    usable = np.array([ids is not None for ids in rows.input_ids])
    smiles = [text if ok else "" for text, ok in zip(data.smiles, usable, strict=True)]
    parts = splits.split(smiles, method, targets=data.targets, column=data.split_values)
    task = PropertyTask(data, rows, parts)
    for name, part in parts.parts().items():
        if not len(task.labelled(part)):
            raise SmilexError(f"no molecule of the {name} part has a label: use another split or give more labels")
    check_precision(data.targets, data.task_names)
    for name, values in zip(data.task_names, data.targets[parts.train].T, strict=True):
        if np.isnan(values).all():
            warnings.warn(
                f"no molecule of the training part has a label of {name!r}: its predictions mean nothing", stacklevel=3
            )
    return task


def _conclude(run: Run, task: PropertyTask, predictions: NDArray[np.float32]) -> FinetuneResult:
    """Write the table, the figures and the plots of all seeds; predictions are (seeds, n, tasks)."""
    data = task.data
    table = _table(task, predictions)
    # Ids of canonical SMILES are equal where the molecules are: no need to parse them again.
    duplicates = splits.repeated(None if ids is None else tuple(ids) for ids in task.rows.input_ids)
    metrics = {
        name: _score(data, part, predictions[:, part])
        for name, part in (("valid", task.parts.valid), ("test", task.parts.test))
    }
    report = {
        "settings": run.settings,
        "versions": versions(),
        "rows": {
            "total": len(data),
            **{name: len(part) for name, part in task.parts.parts().items()},
            "invalid": [{**row._asdict(), "smiles": _printable(row.smiles)} for row in task.rows.invalid],
            "duplicates": sum(len(rows) - 1 for rows in duplicates),
            "molecules_in_two_parts": splits.shared_among(duplicates, task.parts),
        },
        "models": len(predictions),  # a head without chance has one, whatever the seeds
        "metrics": metrics,
    }
    write_text(run.directory / "predictions.csv", _printable(table.to_csv(index=False)))
    write_json(run.directory / "metrics.json", metrics)
    _plot(run.directory, data, task.parts.test, predictions)
    run.finish(report)
    return FinetuneResult(run.directory, metrics["test"]["summary"], table, report)


def _table(task: PropertyTask, predictions: NDArray[np.float32]) -> pd.DataFrame:
    """Lay out parts and measured values before the columns of `smilex.predict`."""
    data = task.data
    part_of_row = np.full(len(data), "", dtype=object)
    for name, part in task.parts.parts().items():
        part_of_row[part] = name
    measured = {f"{name}_measured": data.targets[:, index] for index, name in enumerate(data.task_names)}
    predicted = prediction_table(data.smiles, predictions, data.task_names, task.rows.invalid)
    known = pd.DataFrame({"smiles": predicted.pop("smiles"), "part": part_of_row, **measured})
    return pd.concat([known, predicted], axis=1)


def _printable(text: str) -> str:
    """Text that can be written as UTF-8: lone surrogates, which stand for bytes that were not, become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _score(data: PropertyDataset, part: NDArray[np.int64], predictions: NDArray[np.float32]) -> dict[str, Any]:
    """Figures of one part: each seed, mean and spread over seeds, and the mean prediction of all seeds."""
    labels = data.targets[part]
    seeds = [evaluate(data.kind, labels, predicted, data.task_names) for predicted in predictions]
    return {
        "summary": summarize([scores["mean"] for scores in seeds]),
        "ensemble": evaluate(data.kind, labels, predictions.mean(0), data.task_names),
        "seeds": seeds,
    }


def _plot(directory: Path, data: PropertyDataset, part: NDArray[np.int64], predictions: NDArray[np.float32]) -> None:
    """Draw measured against predicted values of the test part, or its ROC curves, from the mean over seeds."""
    labels, mean = data.targets[part], predictions[:, part].mean(0)
    names = [name.replace("$", r"\$") for name in data.task_names]  # matplotlib reads formulas between dollars
    drawn = varied(labels)
    if data.kind == "classification":
        if drawn.any():
            plot_roc(labels, mean, names, directory / "roc.png")
        return
    spread = predictions[:, part].std(0, ddof=1) if len(predictions) > 1 else None
    for index, name in enumerate(names):
        if drawn[index]:
            file = "parity.png" if len(names) == 1 else f"parity-{index}.png"
            task_spread = None if spread is None else spread[:, index]
            plot_parity(labels[:, index], mean[:, index], name, directory / file, y_std=task_spread)
