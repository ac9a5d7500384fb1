"""Frozen encoders: a pretrained encoder as it is, with estimators of scikit-learn on its vectors."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smilex.embedding import embed_rows
from smilex.errors import SmilexError
from smilex.estimators import (
    HEADS,
    TaskVectors,
    describe,
    fit_task,
    load_estimators,
    predict_tasks,
    save_estimators,
)
from smilex.inference import to_default_device
from smilex.modeling import ExLMConfig, ExLMModel
from smilex.modeling.loading import load_model
from smilex.precision import choose_precision
from smilex.property_task import PropertyTask, positive_weights
from smilex.recipe import Recipe
from smilex.runs import save_model, write_json
from smilex.tokenization import SmilesTokenizer

HEAD_FILE = "head.skops"
"""The estimators of a model, beside its encoder."""

HEAD_REPORT = "head.json"
"""What was fitted for each task, to read."""

IN_USE = ("balance_classes",)
"""The settings of a recipe that a head on a frozen encoder follows."""


def settings_in_use(head: str, encoder: str | Path | None, recipe: Recipe) -> dict[str, Any]:
    """Take from a recipe what has an effect on a head, and refuse to be told the rest in vain.

    Raises
    ------
    SmilexError
        If the head has no such name, or the encoder is frozen and there is none, or the recipe says how to train it.

    Examples
    --------
    >>> settings_in_use("linear", "runs/encoder", Recipe())
    {'balance_classes': False}
    >>> settings_in_use("linear", None, Recipe())
    Traceback (most recent call last):
    ...
    smilex.errors.SmilexError: head='linear' trains no encoder, and one from scratch has nothing to say: name a \
    pretrained encoder, or take head='network'
    """
    if head == "network":
        return {**vars(recipe), "precision": choose_precision(recipe.precision)}
    if head not in HEADS:
        raise SmilexError(f"head is 'network' or, on a frozen encoder, {' or '.join(map(repr, HEADS))}, not {head!r}")
    if encoder is None:
        raise SmilexError(
            f"head={head!r} trains no encoder, and one from scratch has nothing to say: name a pretrained encoder, "
            "or take head='network'"
        )
    default = vars(Recipe())
    unused = [name for name, value in vars(recipe).items() if name not in IN_USE and value != default[name]]
    if unused:
        raise SmilexError(
            f"head={head!r} leaves the encoder as it is, so that {', '.join(unused)} would have no effect: leave "
            "that out, or take head='network'"
        )
    return {name: getattr(recipe, name) for name in IN_USE}


class FrozenModel:
    """A pretrained encoder as it is, and a scikit-learn estimator a task on its vectors.

    Parameters
    ----------
    encoder : ExLMModel
        Its configuration names the tasks (``id2label``), their kind (``problem_type``) and the ``pooling``.
    estimators : sequence of scikit-learn estimators
        Fitted ones, in the order of the tasks; classifiers of classes 0 and 1 where tasks are classes.

    Examples
    --------
    >>> import tempfile
    >>> encoder = ExLMModel(ExLMConfig.from_preset("tiny", problem_type="regression", id2label={0: "logS"}))
    >>> vectors = FrozenModel(encoder, []).embed([[2, 20, 3], [2, 21, 3]]).astype(np.float64)
    >>> task = TaskVectors("regression", vectors, np.array([-1.0, 1.0]), vectors, np.array([-1.0, 1.0]))
    >>> directory = Path(tempfile.mkdtemp())
    >>> FrozenModel(encoder, [fit_task("linear", task, 0)]).save(directory)
    >>> FrozenModel.load(directory).predict_rows([[2, 20, 3], None]).round(2).tolist()
    [[-1.0], [nan]]
    """

    def __init__(self, encoder: ExLMModel, estimators: Sequence[Any]) -> None:
        self.encoder = to_default_device(encoder.eval())
        self.estimators = list(estimators)

    @property
    def config(self) -> ExLMConfig:
        """Configuration of the encoder, with the tasks."""
        return self.encoder.config

    def embed(self, rows: Sequence[Sequence[int] | None]) -> NDArray[np.float32]:
        """Vectors of tokenised molecules, (n, d); NaN where a row is None."""
        return embed_rows(self.encoder, rows, self.config.pooling)

    def predict_vectors(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Predict from vectors, (n, d) → (n, tasks), in the units of the data or as probabilities of class 1."""
        known = ~np.isnan(vectors).any(axis=1)
        predictions = np.full((len(vectors), len(self.estimators)), np.nan, dtype=np.float32)
        if known.any():
            found = vectors[known].astype(np.float64)
            predictions[known] = predict_tasks(self.estimators, found)
        return predictions

    def predict_rows(self, rows: Sequence[Sequence[int] | None]) -> NDArray[np.float32]:
        """Predict tokenised molecules, as `smilex.prediction.predict_rows` does with a network."""
        return self.predict_vectors(self.embed(rows))

    def save(self, directory: Path) -> None:
        """Save the encoder, its tokenizer and the estimators; all that `load` needs lies in the directory."""
        save_model(self.encoder, SmilesTokenizer(), directory)
        save_estimators(self.estimators, directory / HEAD_FILE)

    @classmethod
    def load(cls, directory: Path) -> "FrozenModel":
        """Load what `save` wrote; no pickle is read.

        Raises
        ------
        SmilexError
            If the directory is not whole, or holds types or trees that no head of smilex has.
        """
        encoder = load_model(ExLMModel, directory)
        config = encoder.config
        return cls(encoder, load_estimators(directory / HEAD_FILE, len(config.id2label or {}), config.hidden_size))


def train_heads(
    head: str, task: PropertyTask, config: ExLMConfig, source: Path, recipe: Recipe, directory: Path, seeds: int
) -> NDArray[np.float32]:
    """Embed all molecules once, and fit, save and apply a model for each seed.

    Parameters
    ----------
    head : {"linear", "random_forest"}
        What to fit.
    task : PropertyTask
        What to learn, and from which molecules.
    config : ExLMConfig
        From `smilex.property_training.property_config`.
    source : Path
        Where the encoder's weights come from.
    recipe : Recipe
        Whether the classes are balanced; the rest is for networks.
    directory : Path
        Where to make seed-0, seed-1, …, a model each.
    seeds : int
        Models to fit. A linear head is fitted once, as it holds no chance.

    Returns
    -------
    float32 array of shape (models, n, tasks)
        Predictions for all rows; NaN where a row is invalid.
    """
    encoder = load_model(ExLMModel, source, config=config)
    vectors = FrozenModel(encoder, []).embed(task.rows.input_ids)
    predictions = []
    for seed in range(1 if head == "linear" else seeds):
        place = directory / f"seed-{seed}"
        place.mkdir()
        model = FrozenModel(encoder, [])
        described = {}
        for name, vectors_of_task in _tasks(task, vectors, balance=recipe.balance_classes):
            estimator = fit_task(head, vectors_of_task, seed)
            model.estimators.append(estimator)
            described[name] = {**describe(estimator), "training_labels": len(vectors_of_task.train_labels)}
        model.save(place)
        write_json(place / HEAD_REPORT, described)
        predictions.append(model.predict_vectors(vectors))
    return np.stack(predictions)


def _tasks(task: PropertyTask, vectors: NDArray[np.float32], *, balance: bool) -> Iterator[tuple[str, TaskVectors]]:
    """Give out each task with its name, without the molecules whose label is missing; one at a time, for memory."""
    data, train, valid = task.data, task.parts.train, task.parts.valid
    weights = np.ones(len(data.task_names))
    if balance and data.kind == "classification":
        weights = positive_weights(data.targets[train])
    for name, labels, weight in zip(data.task_names, data.targets.T, weights, strict=True):
        learned, chosen = (part[~np.isnan(labels[part])] for part in (train, valid))
        train_vectors, valid_vectors = (vectors[part].astype(np.float64) for part in (learned, chosen))
        yield (
            name,
            TaskVectors(
                data.kind, train_vectors, labels[learned], valid_vectors, labels[chosen], positive_weight=float(weight)
            ),
        )
