"""Training one model on measured properties: the trainer behind `smilex.finetune`."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import EarlyStoppingCallback, TrainingArguments, set_seed

from smilex.data.properties import PropertyDataset
from smilex.data.random_smiles import RandomSmiles
from smilex.errors import SmilexError
from smilex.layer_rates import parameter_groups
from smilex.metrics import evaluate
from smilex.modeling import ExLMConfig, ExLMForMoleculeProperty
from smilex.modeling.loading import property_network, starting_config
from smilex.modeling.molecule_property import CLASSIFICATION, REGRESSION
from smilex.precision import choose_precision, trainer_precision
from smilex.prediction import predict_rows
from smilex.processes import refuse_many_processes
from smilex.property_task import PropertyTask, TrainingMolecules, collate, positive_weights
from smilex.recipe import Recipe
from smilex.report.progress import ProgressBar
from smilex.runs import MetricsLog, save_model
from smilex.tokenization import SmilesTokenizer
from smilex.trainer import QuietTrainer

PROBLEM_TYPES = {"regression": REGRESSION, "classification": CLASSIFICATION}


def property_config(
    data: PropertyDataset, source: Path | None, model: str | None, pooling: str, recipe: Recipe
) -> ExLMConfig:
    """Configure a model for the tasks of a dataset, see `smilex.modeling.loading.starting_config`."""
    return starting_config(
        source,
        model,
        id2label=dict(enumerate(data.task_names)),
        label2id={name: index for index, name in enumerate(data.task_names)},
        problem_type=PROBLEM_TYPES[data.kind],
        pooling=pooling,
        **recipe.model_fields(),
    )


def train_networks(
    task: PropertyTask,
    config: ExLMConfig,
    source: Path | None,
    recipe: Recipe,
    directory: Path,
    seeds: int,
    *,
    progress: bool,
) -> NDArray[np.float32]:
    """Train, save and apply a network for each seed.

    Parameters
    ----------
    task, config, source, recipe, progress
        As in `fit_network`.
    directory : Path
        Where to make seed-0, seed-1, …, a model each.
    seeds : int
        Networks to train.

    Returns
    -------
    float32 array of shape (seeds, n, tasks)
        Predictions for all rows; NaN where a row is invalid.
    """
    predictions = []
    for seed in range(seeds):
        place = directory / f"seed-{seed}"
        network = fit_network(task, config, source, recipe, place, seed, progress=progress)
        save_model(network, SmilesTokenizer(), place)
        predictions.append(predict_rows(network, task.rows.input_ids))
    return np.stack(predictions)


def fit_network(
    task: PropertyTask,
    config: ExLMConfig,
    source: Path | None,
    recipe: Recipe,
    directory: Path,
    seed: int,
    *,
    progress: bool,
) -> ExLMForMoleculeProperty:
    """Train one model and return it with the weights of its best pass.

    Parameters
    ----------
    task : PropertyTask
        What to learn, and from which molecules.
    config : ExLMConfig
        From `property_config`.
    source : Path or None
        Where the encoder's weights come from; None starts from scratch.
    recipe : Recipe
        How to train.
    directory : Path
        Directory to make; metrics.jsonl is written there.
    seed : int
        Seed of the head's weights, the order of the molecules, their random SMILES and dropout.
    progress : bool
        Show a progress bar on stderr.
    """
    refuse_many_processes("fine-tuning")
    directory.mkdir()
    set_seed(seed)
    network = property_network(config, source)
    if task.data.kind == "regression":
        network.standardize_targets(torch.from_numpy(task.data.targets[task.parts.train]))
    trainer = PropertyTrainer(network, task, recipe, directory, seed, progress=progress)
    trainer.train()
    shutil.rmtree(trainer.args.output_dir or "", ignore_errors=True)
    return network


def varied(labels: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which tasks, columns of labels with NaN, have more than one value."""
    return np.array([len(np.unique(values[~np.isnan(values)])) > 1 for values in labels.T])


def check_precision(targets: NDArray[np.float64], task_names: Sequence[str]) -> None:
    """Refuse measured values that float32 cannot tell apart.

    Parameters
    ----------
    targets : float64 array of shape (n, tasks)
        Labels, NaN where missing; each task has one at least.
    task_names : sequence of str
        Names for the message.

    Raises
    ------
    SmilexError
        If the values of a task are too large, or vary too little for their size.

    Examples
    --------
    >>> check_precision(np.array([[1e9], [1e9 + 1]]), ["mass"])
    Traceback (most recent call last):
    ...
    smilex.errors.SmilexError: target column 'mass' is out of the range of single precision (values to 1e+09, standard \
    deviation 0.5): subtract a constant or change the unit
    """
    for name, values in zip(task_names, targets.T, strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            peak, spread = np.nanmax(np.abs(values)), np.nanstd(values)
            step = np.spacing(np.float32(peak))
        if peak > 1e30 or 0 < spread < max(1e-30, 100 * step):
            raise SmilexError(
                f"target column {name!r} is out of the range of single precision (values to {peak:g}, standard "
                f"deviation {spread:g}): subtract a constant or change the unit"
            )


class PropertyTrainer(QuietTrainer):
    """transformers' Trainer that stops on the figures of the validation part."""

    def __init__(
        self,
        model: ExLMForMoleculeProperty,
        task: PropertyTask,
        recipe: Recipe,
        directory: Path,
        seed: int,
        *,
        progress: bool,
    ) -> None:
        self._task = task
        self._recipe = recipe
        self._valid = task.labelled(task.parts.valid)
        tasks = task.data.targets.shape[1]
        self._positive_weight = (
            positive_weights(task.data.targets[task.parts.train])
            if recipe.balance_classes and task.data.kind == "classification"
            else np.ones(tasks)
        )
        writer = RandomSmiles(model.config.max_position_embeddings) if recipe.random_smiles else None
        # ROC-AUC is undefined where the validation part has one class only.
        ranks = task.data.kind == "classification" and bool(varied(task.data.targets[self._valid]).any())
        super().__init__(
            model,
            _training_arguments(recipe, directory / "checkpoints", seed, ranks=ranks),
            data_collator=collate,
            train_dataset=TrainingMolecules(task, task.parts.train, self._positive_weight, writer, seed),
            eval_dataset=TrainingMolecules(task, task.parts.valid, self._positive_weight),
            callbacks=[
                EarlyStoppingCallback(early_stopping_patience=recipe.patience),
                MetricsLog(directory / "metrics.jsonl", last_step=0),
            ],
            bar=ProgressBar(f"seed {seed}") if progress else None,
        )

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Make the optimizer of transformers with a learning rate for each layer."""
        if self.optimizer is None:
            network = cast("ExLMForMoleculeProperty", self.model)
            optimizer, settings = self.get_optimizer_cls_and_kwargs(self.args, network)
            groups = parameter_groups(
                network,
                self.args.learning_rate,
                self._recipe.layer_decay,
                self.args.weight_decay,
                self.get_decay_parameter_names(network),
            )
            self.optimizer = optimizer(groups, **settings)
        return super().create_optimizer(model)

    def evaluate(self, *_: object, **__: object) -> dict[str, float]:
        """Score the validation part and log the figures."""
        network = cast("ExLMForMoleculeProperty", self.model)
        data = self._task.data
        labels = data.targets[self._valid]
        predicted = predict_rows(network, [self._task.rows.input_ids[row] for row in self._valid])
        if not np.isfinite(predicted).all():
            raise SmilexError(f"training diverged in epoch {self.state.epoch:.0f}: lower learning_rate")
        scores = evaluate(data.kind, labels, predicted, data.task_names)["mean"]
        figures = {f"eval_{name}": value for name, value in scores.items() if value is not None}
        figures["eval_loss"] = self._validation_loss(labels, predicted)
        self.log(dict(figures))
        if "eval_roc_auc" in figures:
            # A small validation part often has the same ROC-AUC in several passes, and the first of them may give all
            # molecules one class: among equals the loss decides.
            figures["eval_ranking"] = figures["eval_roc_auc"] - 1e-4 * figures["eval_loss"]
        # Early stopping listens here.
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, figures)
        return figures

    def _validation_loss(self, labels: NDArray[np.float64], predicted: NDArray[np.float32]) -> float:
        """Training loss without dropout, from predictions in the units of the data."""
        if self._task.data.kind == "regression":
            scale = cast("ExLMForMoleculeProperty", self.model).target_std.cpu().numpy()
            return float(np.nanmean(((predicted - labels) / scale) ** 2))
        sure = np.clip(predicted.astype(np.float64), 1e-7, 1 - 1e-7)
        positive = self._positive_weight * labels * np.log(sure)
        return float(-np.nanmean(positive + (1 - labels) * np.log(1 - sure)))


def _training_arguments(recipe: Recipe, checkpoints: Path, seed: int, *, ranks: bool) -> TrainingArguments:
    """Put a recipe into the words of transformers; the best pass is that of the best ranking, or of the least loss."""
    return TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=recipe.epochs,
        per_device_train_batch_size=recipe.batch_size,
        train_sampling_strategy="group_by_length",
        learning_rate=recipe.learning_rate,
        weight_decay=0.01,
        warmup_steps=0.1,
        seed=seed,
        eval_strategy="epoch",
        logging_strategy="epoch",
        save_strategy="best",
        save_only_model=True,
        save_total_limit=1,
        metric_for_best_model="ranking" if ranks else "loss",
        greater_is_better=ranks,
        load_best_model_at_end=True,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
        **trainer_precision(choose_precision(recipe.precision)),
    )
