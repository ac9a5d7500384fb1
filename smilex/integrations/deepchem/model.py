"""An ExLM encoder that DeepChem fine-tunes."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smilex import DEFAULT_ENCODER
from smilex.checks import count
from smilex.data.batching import pad
from smilex.data.random_smiles import RandomSmiles
from smilex.data.rows import EncodedRows, encode_rows, warn_invalid
from smilex.errors import SmilexError
from smilex.integrations.deepchem.library import deepchem
from smilex.modeling import ExLMForMoleculeProperty
from smilex.modeling.loading import find_encoder, property_network, starting_config
from smilex.modeling.molecule_property import CLASSIFICATION, REGRESSION
from smilex.prediction import predict_rows
from smilex.recipe import Recipe
from smilex.tokenization import SmilesTokenizer

_MODES = {"regression": REGRESSION, "classification": CLASSIFICATION}


class ExLMTorchModel(deepchem.models.torch_models.TorchModel):
    """An ExLM encoder with a head, fine-tuned by DeepChem on a dataset whose X are SMILES.

    Parameters
    ----------
    n_tasks : int
        Columns of y.
    mode : {"regression", "classification"}, default "regression"
        Classification is binary, each task by itself: its labels are 0 and 1.
    encoder : str, Path or None, default "smilex-small"
        Directory of a pretrained model, or the name of one that ships with the package; None starts from scratch.
    model : {"tiny", "small", "base"}, optional
        Size of an encoder from scratch, with ``encoder=None`` alone; "small" by default.
    pooling : {"mean", "cls"}, default "mean"
        What the head reads: the mean over the molecule's tokens, or the first state of [CLS].
    dropout, random_smiles, averaged_smiles : optional
        As in `smilex.finetune`.
    batch_size : int, default 32
        Molecules in a batch; a batch is padded to its own longest molecule.
    learning_rate : float or deepchem.models.optimizers.LearningRateSchedule, default 5e-4
        Of Adam, where no `optimizer` is given.
    **kwargs
        What else `deepchem.models.TorchModel` takes: model_dir, optimizer, device, tensorboard, log_frequency, …

    Raises
    ------
    SmilexError
        If a setting or the encoder cannot be used; from `fit`, if the labels do not fit `n_tasks` and `mode`.

    Notes
    -----
    X is an array of SMILES strings or RDKit molecules, as from ``dc.feat.DummyFeaturizer``, ``dc.feat.RawFeaturizer``
    or ``dc.data.NumpyDataset``. `predict` returns (n, n_tasks) for regression, and (n, n_tasks, 2) with the
    probabilities of class 0 and 1 for classification.

    Labels that are NaN or have weight 0 are missing. An invalid molecule has weight 0 in `fit`, is left out of
    `evaluate`, and its prediction is NaN; each time an `InvalidMoleculeWarning` names it.

    The first `fit` on regression targets takes their mean and standard deviation into the model, so that targets of
    any unit can be learned; predictions are in the units of the dataset.

    ``model.model.network`` is the `smilex.modeling.ExLMForMoleculeProperty` inside; what its ``save_pretrained`` writes
    is a model for `smilex.predict`.

    Examples
    --------
    >>> import deepchem
    >>> dataset = deepchem.data.NumpyDataset(["CCO", "c1ccccc1", "CCN"], np.array([[-0.3], [2.1], [-0.1]]))
    >>> model = ExLMTorchModel(n_tasks=1, batch_size=2)
    >>> loss = model.fit(dataset, nb_epoch=1)
    >>> model.predict(dataset).shape
    (3, 1)
    """

    def __init__(
        self,
        n_tasks: int,
        mode: Literal["regression", "classification"] = "regression",
        encoder: str | Path | None = DEFAULT_ENCODER,
        *,
        model: str | None = None,
        pooling: Literal["mean", "cls"] = "mean",
        dropout: float | None = Recipe.dropout,
        random_smiles: bool = Recipe.random_smiles,
        averaged_smiles: int = Recipe.averaged_smiles,
        batch_size: int = 32,
        learning_rate: Any = 5e-4,
        **kwargs: Any,
    ) -> None:
        if mode not in _MODES:
            raise SmilexError(f"mode is 'regression' or 'classification', not {mode!r}")
        recipe = Recipe(
            batch_size=batch_size, dropout=dropout, random_smiles=random_smiles, averaged_smiles=averaged_smiles
        )
        self.n_tasks = count("n_tasks", n_tasks)
        self.mode = mode
        self.random_smiles = recipe.random_smiles
        source = None if encoder is None else find_encoder(encoder)
        tasks = {"num_labels": self.n_tasks, "problem_type": _MODES[mode], "pooling": pooling}
        config = starting_config(source, model, **tasks, **recipe.model_fields())
        network = property_network(config, source)
        super().__init__(
            _Network(network),
            _StandardizedL2Loss(network) if mode == "regression" else deepchem.models.losses.SigmoidCrossEntropy(),
            output_types=["prediction", "loss"],
            batch_size=recipe.batch_size,
            learning_rate=learning_rate,
            **kwargs,
        )

    def fit(self, dataset: Any, *args: Any, **kwargs: Any) -> float:
        """Train on a dataset; the arguments are those of `deepchem.models.TorchModel.fit`.

        Returns
        -------
        float
            Mean loss since the last line of the log: weight times binary cross-entropy, or times squared error over
            the variance of the targets.

        Raises
        ------
        SmilexError
            If no molecule can be used and has a label, or the labels do not fit `n_tasks` and `mode`.
        """
        self._ensure_built()
        if self.mode == "regression" and self.get_global_step() == 0:
            labels, weights = self._labels(dataset)
            present = torch.from_numpy(np.where(weights != 0, labels, np.nan))
            self.model.network.standardize_targets(present.to(self.device))
        with warnings.catch_warnings():
            # DeepChem adds up losses that torch would have detached.
            warnings.filterwarnings("ignore", "Converting a tensor with requires_grad=True to a scalar")
            return super().fit(dataset, *args, **kwargs)

    def evaluate(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """Score predictions for a dataset; the arguments are those of `deepchem.models.Model.evaluate`.

        Missing labels count as the 0 that stands in y, as DeepChem's metrics have it, unless `use_sample_weights` is
        set.

        Raises
        ------
        SmilexError
            If no molecule can be used.
        """
        rows = self._encode(dataset)
        if rows.invalid:
            usable = np.array([ids is not None for ids in rows.input_ids])
            if not usable.any():
                raise SmilexError("no row of X holds a molecule that can be used: X must be SMILES or RDKit molecules")
            dataset = deepchem.data.NumpyDataset(
                dataset.X[usable], dataset.y[usable], dataset.w[usable], dataset.ids[usable]
            )
        return super().evaluate(dataset, *args, **kwargs)

    def save(self) -> None:
        """Write a checkpoint into `model_dir`; `fit` does so by itself, unless its checkpoint_interval is 0."""
        self.save_checkpoint()

    def reload(self) -> None:
        """Restore the latest checkpoint in `model_dir`."""
        self.restore()

    def restore(self, *args: Any, **kwargs: Any) -> None:
        """Restore a checkpoint; the arguments are those of `deepchem.models.TorchModel.restore`.

        Raises
        ------
        SmilexError
            If the checkpoint is of a model with other sizes.
        """
        try:
            super().restore(*args, **kwargs)
        except RuntimeError as error:
            raise SmilexError(
                "the checkpoint is of a model with another encoder or another n_tasks: give this one the same settings"
            ) from error

    def default_generator(
        self,
        dataset: Any,
        epochs: int = 1,
        mode: str = "fit",
        deterministic: bool = True,
        pad_batches: bool = False,
    ) -> Iterator[tuple[list[Any], list[Any], list[Any]]]:
        """Iterate over batches of token ids; labels and weights come with them where `mode` is "fit"."""
        rows = self._encode(dataset)
        labels = weights = np.zeros((len(rows.input_ids), self.n_tasks), dtype=np.float32)
        if mode == "fit":
            labels, weights = self._labels(dataset)
            weights[[row.index for row in rows.invalid]] = 0
            if not weights.any():
                raise SmilexError("no row holds a molecule that can be used and a label of weight above 0")
        # Row numbers in place of molecules: DeepChem shuffles them, and each molecule is parsed once.
        numbers = deepchem.data.NumpyDataset(np.arange(len(rows.input_ids)), labels, weights)
        batches = numbers.iterbatches(self.batch_size, epochs, deterministic=deterministic, pad_batches=pad_batches)
        return self._batches(rows, batches, random_smiles=self.random_smiles and mode == "fit")

    def _batches(
        self, rows: EncodedRows, batches: Iterator[Any], *, random_smiles: bool
    ) -> Iterator[tuple[list[Any], list[Any], list[Any]]]:
        config = self.model.network.config
        # [CLS] [SEP] stands for an invalid molecule.
        nothing = [config.cls_token_id, config.sep_token_id]
        ids = [row or nothing for row in rows.input_ids]
        writer = RandomSmiles(config.max_position_embeddings)
        for chosen, labels, weights, _ in batches:
            written = [ids[number] for number in chosen]
            if random_smiles:
                step = self.get_global_step()
                written = [writer.draw(ids[number], (step, number)) for number in chosen]
            molecules = [np.asarray(row, dtype=np.int64) for row in written]
            yield [pad(molecules, config.pad_token_id)], [labels], [weights]

    def _encode(self, dataset: Any) -> EncodedRows:
        max_length = self.model.network.config.max_position_embeddings
        rows = encode_rows(list(dataset.X), SmilesTokenizer(), max_length=max_length)
        warn_invalid(rows.invalid, len(rows.input_ids))
        return rows

    def _labels(self, dataset: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Labels and weights, both (n, n_tasks); where a label is missing, both are 0."""
        if not len(dataset) or not len(dataset.get_task_names()):
            raise SmilexError("the dataset has no labels to learn from")
        labels = np.asarray(dataset.y, dtype=np.float32).reshape(len(dataset), -1)
        if labels.shape[1] != self.n_tasks:
            raise SmilexError(f"y has {labels.shape[1]} columns, and the model was made with n_tasks={self.n_tasks}")
        weights = np.asarray(dataset.w, dtype=np.float32).reshape(len(dataset), -1)
        if weights.shape[1] not in (1, self.n_tasks):
            raise SmilexError(f"w has {weights.shape[1]} columns, and y has {self.n_tasks}")
        missing = np.isnan(labels) | (weights == 0)
        labels = np.where(missing, 0, labels)
        if not (np.isfinite(labels).all() and np.isfinite(weights).all()):
            raise SmilexError("y or w holds infinite values, or w NaN: mark missing labels by a weight of 0")
        if self.mode == "classification" and not np.isin(labels, (0, 1)).all():
            raise SmilexError("classification takes labels of 0 and 1: mark missing labels by a weight of 0")
        return labels, np.where(missing, 0, weights)

    def _create_assignment_map(self, source_model: Any, include_top: bool = True, **kwargs: Any) -> dict[Any, Any]:
        # For load_from_pretrained, which takes the parameters: a head needs the scale of its targets beside them.
        assigned: dict[Any, Any] = super()._create_assignment_map(source_model, include_top, **kwargs)
        if include_top:
            assigned.update(zip(source_model.model.buffers(), self.model.buffers(), strict=True))
        return assigned

    def _create_value_map(self, source_model: Any, **kwargs: Any) -> dict[Any, Any]:
        values: dict[Any, Any] = super()._create_value_map(source_model, **kwargs)
        return values | {buffer: buffer.cpu().numpy() for buffer in source_model.model.buffers()}

    def _predict(self, *args: Any, **kwargs: Any) -> Any:
        # DeepChem's keeps gradients, and leaves dropout off when a callback predicts in the midst of training.
        training = self.model.training
        try:
            with torch.no_grad():
                return super()._predict(*args, **kwargs)
        finally:
            self.model.train(training)


class _Network(nn.Module):
    """The outputs that TorchModel asks for: the prediction, and what the loss is computed from."""

    def __init__(self, network: ExLMForMoleculeProperty) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Token ids, int64 (B, L) → predictions and outputs for the loss, (B, tasks); see `ExLMTorchModel`."""
        config = self.network.config
        output = self.network(input_ids).logits
        if config.problem_type == REGRESSION:
            output = output * self.network.target_std + self.network.target_mean
        if config.averaged_smiles > 1 and not self.training:
            rows = [row[row != config.pad_token_id].tolist() for row in input_ids.cpu()]
            prediction = torch.from_numpy(predict_rows(self.network, rows)).to(output)
        else:
            prediction = output.clone() if config.problem_type == REGRESSION else output.sigmoid()
        no_molecule = input_ids[:, 1] == config.sep_token_id
        prediction[no_molecule] = torch.nan
        if config.problem_type != REGRESSION:
            prediction = torch.stack([1 - prediction, prediction], dim=-1)
        return prediction, output


class _StandardizedL2Loss(deepchem.models.losses.Loss):
    """Squared error in units of the targets' standard deviation, so that Adam learns targets of any unit."""

    def __init__(self, network: ExLMForMoleculeProperty) -> None:
        self.network = network

    def _create_pytorch_loss(self) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda output, labels: ((output - labels) / self.network.target_std) ** 2
