"""Predicting properties with a fine-tuned model."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rdkit import Chem

from smilex.data.random_smiles import RandomSmiles
from smilex.data.rows import InvalidRow, encode_rows, warn_invalid
from smilex.errors import SmilexError
from smilex.frozen import HEAD_FILE, FrozenModel
from smilex.inference import run_rows, to_default_device
from smilex.modeling import ExLMConfig, ExLMForMoleculeProperty
from smilex.modeling.loading import is_directory, load_model
from smilex.tokenization import SmilesTokenizer

ENDINGS = ("sd", "measured")
"""What is added to the name of a task for the columns beside its predictions."""

_SEED = re.compile("seed-(0|[1-9][0-9]*)")

PIECE = 10_000
"""Molecules whose random SMILES are in memory at once."""


def predict(
    model_dir: str | Path,
    smiles: Iterable[str | Chem.Mol],
    *,
    errors: Literal["report", "raise"] = "report",
) -> pd.DataFrame:
    """Predict properties of molecules.

    Parameters
    ----------
    model_dir : str or Path
        What `smilex.finetune` wrote. With models of several seeds the prediction is their mean; each averages over
        random SMILES if it was fine-tuned to do so.
    smiles : iterable of str or rdkit.Chem.Mol
        The molecules.
    errors : {"report", "raise"}, default "report"
        What to do with an invalid molecule: NaN, its reason in the column `error` and a line in one
        `InvalidMoleculeWarning`; or an error.

    Returns
    -------
    pandas.DataFrame
        One row per input, in order: `smiles` as given; a column for each task, in the units of the training data or
        the probability of class 1; with several seeds TASK_sd, their sample standard deviation; `error`, empty where
        the molecule is valid.

    Raises
    ------
    SmilexError
        If the directory holds no fine-tuned model, or not all of a run's, `smiles` is a single string, or, with
        ``errors="raise"``, a molecule is invalid.

    Examples
    --------
    >>> import tempfile
    >>> from smilex.modeling import ExLMConfig
    >>> config = ExLMConfig.from_preset("tiny", problem_type="regression", id2label={0: "logS"})
    >>> directory = tempfile.mkdtemp()
    >>> ExLMForMoleculeProperty(config).save_pretrained(directory)
    >>> list(predict(directory, ["CCO", "c1ccccc1"]).columns)
    ['smiles', 'logS', 'error']
    """
    directories = model_directories(Path(model_dir))
    models = [load_predictor(directory) for directory in directories]
    check_alike(directories, models)
    config = models[0].config
    molecules = list(smiles) if isinstance(smiles, Iterator) else smiles  # they are read twice
    rows = encode_rows(molecules, SmilesTokenizer(), max_length=config.max_position_embeddings, errors=errors)
    warn_invalid(rows.invalid, len(rows.input_ids))
    predictions = np.stack([model.predict_rows(rows.input_ids) for model in models])
    given = [Chem.MolToSmiles(item) if isinstance(item, Chem.Mol) else item for item in molecules]
    return prediction_table(given, predictions, task_names(config), rows.invalid)


class Predictor(NamedTuple):
    """What predicts properties, whatever it is made of.

    Parameters
    ----------
    config : ExLMConfig
        Names and kind of the tasks, and how long a molecule may be.
    predict_rows : callable
        Token ids of each molecule, or None where there is none → float32 array of shape (n, tasks).
    """

    config: ExLMConfig
    predict_rows: Callable[[Sequence[Sequence[int] | None]], NDArray[np.float32]]


def load_predictor(directory: Path) -> Predictor:
    """Load a model of one seed: a network, or a frozen encoder with its estimators.

    Raises
    ------
    SmilexError
        If the directory holds neither, or not the whole of it.
    """
    if is_directory(directory) and (directory / HEAD_FILE).is_file():
        frozen = FrozenModel.load(directory)
        return Predictor(frozen.config, frozen.predict_rows)
    network = to_default_device(load_model(ExLMForMoleculeProperty, directory))
    return Predictor(cast("ExLMConfig", network.config), partial(predict_rows, network))


def model_directories(model_dir: Path) -> list[Path]:
    """Directories of the single models in what `smilex.finetune` wrote; one model is itself.

    Raises
    ------
    SmilexError
        If the run is not finished, or a model of it is missing, as after a copy that was cut off: the mean over the
        others would be another prediction.
    """
    found = model_dir.glob("seed-*") if is_directory(model_dir) else ()
    numbers = sorted(int(seed[1]) for path in found if (seed := _SEED.fullmatch(path.name)))
    if not numbers:
        return [model_dir]
    expected = list(range(_models(model_dir)))
    if numbers != expected:
        missing, extra = sorted({*expected} - {*numbers}), sorted({*numbers} - {*expected})
        what = f"lacks seed-{missing[0]}" if missing else f"has a seed-{extra[0]} that is not its own"
        raise SmilexError(f"{model_dir} {what}: the run made {len(expected)} models; copy the whole directory again")
    return [model_dir / f"seed-{number}" for number in numbers]


def _models(model_dir: Path) -> int:
    """How many models a finished run made."""
    report = model_dir / "report.json"
    if not report.is_file():
        raise SmilexError(f"{model_dir} holds a fine-tuning run that did not finish: run it again in another directory")
    try:
        return int(json.loads(report.read_text(encoding="utf-8"))["models"])
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise SmilexError(f"cannot read how many models {report} has: {error}; copy the directory again") from error


def check_alike(directories: Sequence[Path], models: Sequence[Predictor]) -> None:
    """Refuse models of several runs, whose mean would mean nothing.

    Raises
    ------
    SmilexError
        If they do not all predict the same tasks.
    """
    first = models[0].config
    for directory, model in zip(directories, models, strict=True):
        if (model.config.id2label, model.config.problem_type) != (first.id2label, first.problem_type):
            raise SmilexError(f"{directory} predicts something else than {directories[0]}: they are not of one run")


def task_names(config: ExLMConfig) -> list[str]:
    """Names of the tasks, in the order of a model's outputs."""
    return [str(name) for _, name in sorted((config.id2label or {}).items())]


def predict_rows(model: ExLMForMoleculeProperty, rows: Sequence[Sequence[int] | None]) -> NDArray[np.float32]:
    """Predict tokenised molecules where the model is, with dropout off.

    Parameters
    ----------
    model : ExLMForMoleculeProperty
        Where its ``config.averaged_smiles`` is above 1, each prediction is the mean over so many SMILES of the
        molecule: the one given and different random ones, always the same; fewer where the molecule has fewer.
    rows : sequence of (sequence of int, or None)
        Token ids of each molecule; None where there is none.

    Returns
    -------
    float32 array of shape (n, tasks)
        Values in the units of the data, or probabilities of class 1; NaN where a row is None.
    """
    if model.config.averaged_smiles == 1 or not rows:
        return _run(model, rows)
    pieces = [_run_averaged(model, rows[start : start + PIECE]) for start in range(0, len(rows), PIECE)]
    return np.concatenate(pieces)


def _run_averaged(model: ExLMForMoleculeProperty, rows: Sequence[Sequence[int] | None]) -> NDArray[np.float32]:
    """Predict every SMILES of each molecule, and take their mean."""
    writer, count = RandomSmiles(model.config.max_position_embeddings), model.config.averaged_smiles
    writings = [[None] if row is None else writer.several(row, count) for row in rows]
    counts = np.array([len(same) for same in writings])
    values = _run(model, [ids for same in writings for ids in same]).astype(np.float64)
    sums = np.add.reduceat(values, np.cumsum(counts) - counts)
    return (sums / counts[:, None]).astype(np.float32)


def _run(model: ExLMForMoleculeProperty, rows: Sequence[Sequence[int] | None]) -> NDArray[np.float32]:
    width = model.output.out_features
    return run_rows(model.eval().predict, rows, width, pad_id=model.config.pad_token_id, device=model.device)


def check_task_names(tasks: Sequence[str]) -> None:
    """Refuse names of tasks that would give a table two columns of one name.

    Examples
    --------
    >>> check_task_names(["logS", "error"])
    Traceback (most recent call last):
    ...
    smilex.errors.SmilexError: the predictions have a column 'error' of their own: rename the target column 'error'
    """
    taken = {"smiles": "", "part": "", "error": ""} | {f"{task}_{end}": task for task in tasks for end in ENDINGS}
    for task in tasks:
        if task in taken:
            owner = f" for {taken[task]!r}" if taken[task] else ""
            raise SmilexError(
                f"the predictions have a column {task!r} of their own{owner}: rename the target column {task!r}"
            )


def prediction_table(
    smiles: Sequence[object], predictions: NDArray[np.float32], tasks: Sequence[str], invalid: Sequence[InvalidRow]
) -> pd.DataFrame:
    """Lay out predictions of one or several models, (models, n, tasks), as `predict` returns them."""
    check_task_names(tasks)
    # Objects, as pandas' own strings cannot hold bytes that were not UTF-8.
    table: dict[str, object] = {"smiles": pd.Series(list(smiles), dtype=object)}
    for index, task in enumerate(tasks):
        values = predictions[:, :, index]
        table[task] = values.mean(0)
        if len(values) > 1:
            table[f"{task}_sd"] = values.std(0, ddof=1)
    reasons = {row.index: row.reason for row in invalid}
    table["error"] = [reasons.get(index, "") for index in range(len(smiles))]
    return pd.DataFrame(table)
