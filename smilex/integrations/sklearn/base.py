"""Training behind the regressor and the classifier."""

import copy
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from smilex import DEFAULT_ENCODER
from smilex.checks import number
from smilex.data.properties import Kind, PropertyDataset
from smilex.data.rows import EncodedRows, encode_rows, warn_invalid
from smilex.data.splits import Split
from smilex.data.stratify import assign, label_indicators
from smilex.errors import SmilexError
from smilex.inference import to_default_device
from smilex.integrations.sklearn.arrays import read_labels, read_molecules, tag_molecules
from smilex.modeling.loading import find_encoder
from smilex.precision import Precision
from smilex.prediction import predict_rows
from smilex.property_task import PropertyTask
from smilex.property_training import check_precision, fit_network, property_config
from smilex.recipe import Recipe
from smilex.tokenization import SmilesTokenizer


class SmilesModel(BaseEstimator):
    """What the regressor and the classifier share: settings, training and the outputs of the network."""

    def __init__(
        self,
        encoder: str | Path | None = DEFAULT_ENCODER,
        model: str | None = None,
        *,
        pooling: Literal["mean", "cls"] = "mean",
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
        validation_fraction: float = 0.1,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = False,
    ) -> None:
        self.encoder = encoder
        self.model = model
        self.pooling = pooling
        self.epochs = epochs
        self.patience = patience
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.layer_decay = layer_decay
        self.dropout = dropout
        self.balance_classes = balance_classes
        self.random_smiles = random_smiles
        self.averaged_smiles = averaged_smiles
        self.precision = precision
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.progress = progress

    def _train(self, molecules: list[Any], labels: NDArray[np.float64], kind: Kind) -> None:
        """Fit `network_` to labels of shape (n,) or (n, tasks)."""
        recipe = Recipe(**{field.name: getattr(self, field.name) for field in fields(Recipe)})
        if not 0 < number("validation_fraction", self.validation_fraction) < 1:
            raise SmilexError(f"validation_fraction lies between 0 and 1, not at {self.validation_fraction}")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        targets = _columns(labels)
        names = [f"y{number}" for number in range(targets.shape[1])]
        smiles = [item if isinstance(item, str) else "" for item in molecules]
        data = PropertyDataset("X", smiles, targets, names, kind)
        source = None if self.encoder is None else find_encoder(self.encoder)
        config = property_config(data, source, self.model, self.pooling, recipe)
        rows = _encode(molecules, config.max_position_embeddings)
        warn_invalid(rows.invalid, len(molecules))
        parts = _hold_out(rows, targets, self.validation_fraction, seed)
        learned = np.concatenate([parts.train, parts.valid])
        empty = np.flatnonzero(np.isnan(targets[learned]).all(axis=0))
        if empty.size:
            raise SmilexError(f"column {empty[0]} of y has no label of a valid molecule: leave it out")
        check_precision(targets[learned], names)
        task = PropertyTask(data, rows, parts)
        with _global_randomness_kept(), tempfile.TemporaryDirectory() as directory:
            network = fit_network(task, config, source, recipe, Path(directory) / "fit", seed, progress=self.progress)
        network.zero_grad(set_to_none=True)  # gradients would double what a fitted estimator holds
        self.network_ = network.eval()
        self._one_column = labels.ndim == 1

    def _read(self, X: Any) -> EncodedRows:
        check_is_fitted(self, "network_")
        return _encode(read_molecules(X), self.network_.config.max_position_embeddings)

    def _outputs(self, rows: EncodedRows) -> NDArray[np.float64]:
        """Predictions of the network, (n, tasks), NaN where there is no molecule."""
        return predict_rows(to_default_device(self.network_), rows.input_ids).astype(np.float64)

    def _shaped(self, columns: NDArray[Any]) -> NDArray[Any]:
        """(n, tasks), or (n,) where y was."""
        return columns[:, 0] if self._one_column else columns

    def _mean_score(
        self,
        score: Callable[..., float],
        y: Any,
        predicted: NDArray[Any],
        rows: EncodedRows,
        sample_weight: ArrayLike | None,
    ) -> float:
        """Mean over the tasks of a score, each from the rows with a molecule and a label of the task."""
        labels = read_labels(y, len(predicted))
        if labels.shape != predicted.shape:
            raise SmilexError(f"y has shape {labels.shape}, and the predictions have {predicted.shape}")
        weights = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight)
        valid = np.array([ids is not None for ids in rows.input_ids])
        scores = []
        for true, guess in zip(_columns(labels).T, _columns(predicted).T, strict=True):
            used = valid & ~pd.isna(true)
            if used.any():
                # Lists of plain values, so that numpy finds their type.
                scores.append(score(true[used].tolist(), guess[used].tolist(), sample_weight=weights[used]))
        if not scores:
            raise SmilexError("no row holds both a valid molecule and a label: there is nothing to score")
        return float(np.mean(scores))

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        if "network_" in state:
            # On the CPU, so that a machine without a GPU can read the pickle.
            state = {**state, "network_": copy.deepcopy(state["network_"]).cpu()}
        return state

    def __sklearn_tags__(self) -> Tags:
        tags = tag_molecules(super().__sklearn_tags__())
        tags.target_tags.multi_output = True
        return tags


def _columns(labels: NDArray[Any]) -> NDArray[Any]:
    return labels[:, None] if labels.ndim == 1 else labels


def _encode(molecules: list[Any], max_length: int) -> EncodedRows:
    return encode_rows(molecules, SmilesTokenizer(), max_length=max_length)


def _hold_out(rows: EncodedRows, targets: NDArray[np.float64], fraction: float, seed: int) -> Split:
    """Split the valid, labelled rows in two, with the labels in like shares and rows of one molecule together."""
    labelled = np.count_nonzero(~np.isnan(targets), axis=1)
    copies: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for row, ids in enumerate(rows.input_ids):
        if ids is not None and labelled[row]:
            copies[tuple(ids)].append(row)  # ids of the canonical SMILES
    groups = list(copies.values())
    if len(groups) < 2:
        raise SmilexError(f"{len(groups)} different molecules are valid and labelled; fit needs at least 2")
    indicators = label_indicators(targets)
    labels = np.array([indicators[group].sum(axis=0, dtype=np.int64) for group in groups])
    share = max(fraction, 1 / len(groups))
    part_of = assign(labels, np.array(list(map(len, groups))), (1 - share, share), seed)
    parts = [
        np.array(sorted(row for index in np.flatnonzero(part_of == part) for row in groups[index]), dtype=np.int64)
        for part in (0, 1)
    ]
    return Split(parts[0], parts[1], np.array([], dtype=np.int64))


@contextmanager
def _global_randomness_kept() -> Iterator[None]:
    """Restore Python's, numpy's and torch's global random states, which training seeds."""
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 (the state that others draw from)
    try:
        with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002
