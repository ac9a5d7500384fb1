"""The interface of an objective."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import datasets
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smilex.data.batching import LengthBatches
from smilex.data.corpus import Corpus
from smilex.data.molecules import Molecule
from smilex.errors import SmilexError
from smilex.modeling import ExLMConfig
from smilex.modeling.encoder import ExLMPreTrainedModel

Batch = dict[str, Tensor]


class Objective(ABC):
    """How a batch is made of molecules, and what is computed from it.

    Everything else (encoder, trainer, checkpoints, logging) is the same for all objectives.

    Parameters
    ----------
    config : ExLMConfig
        The encoder to train; what the objective fixes is changed in a copy of it.
    **settings
        Some of the settings in `defaults`; the others keep their default.

    Attributes
    ----------
    config : ExLMConfig
        The encoder's configuration with what the objective fixes.
    settings : dict
        All settings of the objective.

    Raises
    ------
    SmilexError
        If the objective has no such setting, or it cannot be used.
    """

    name: ClassVar[str]
    model_class: ClassVar[type[ExLMPreTrainedModel]]
    """Encoder and what the objective puts on top of it."""

    keeps_head: ClassVar[bool] = False
    """Whether what stands on top of the encoder is saved at the end; during the run, checkpoints hold it anyway."""

    defaults: ClassVar[Mapping[str, Any]]
    """Settings of `smilex.pretrain` that mean something to the objective, with its defaults."""

    fixed_fields: ClassVar[Mapping[str, Any]] = {}
    """Fields of the encoder's configuration that the objective fixes."""

    def __init__(self, config: ExLMConfig, **settings: Any) -> None:
        for name in settings:
            if name not in self.defaults:
                raise SmilexError(f"{name} means nothing to {self.name}, which has {', '.join(self.defaults)}")
        self.config = ExLMConfig(**{**config.own_fields(), **self.fixed_fields})
        self.settings: dict[str, Any] = {**self.defaults, **settings}

    def encoded_lengths(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions that the encoder processes for molecules of these lengths in tokens, for the token budget."""
        return lengths

    def batches(self, lengths: NDArray[np.integer], seed: int) -> LengthBatches:
        """Share out molecules of these lengths among batches: as many as `tokens_per_batch` has room for."""
        return LengthBatches(lengths, self.settings["tokens_per_batch"], seed, encoded=self.encoded_lengths)

    def targets(self, corpus: Corpus, *, progress: bool) -> datasets.Dataset | None:
        """Compute what is to be predicted for each molecule of a corpus, which `collate` finds at the molecules.

        Returns
        -------
        datasets.Dataset or None
            A column `targets`, float of a fixed length, with as many rows as the corpus; None where the batches hold
            all that there is to predict.
        """
        return None

    @abstractmethod
    def collate(self, molecules: list[Molecule], rng: np.random.Generator) -> Batch:
        """Make a batch, each tensor with as many rows for every molecule; all chance comes from `rng`."""

    @abstractmethod
    def losses(self, model: ExLMPreTrainedModel, batch: Batch) -> dict[str, Tensor]:
        """Compute "loss", which is minimised, and its parts by other names, which are logged beside it; scalars."""

    @torch.no_grad()
    def evaluate(self, model: ExLMPreTrainedModel, batches: Iterable[Batch]) -> dict[str, float]:
        """Measure a model in eval mode on held-out batches: its losses, averaged over molecules."""
        totals: defaultdict[str, float] = defaultdict(float)
        rows = 0
        for batch in batches:
            size = len(next(iter(batch.values())))
            rows += size
            for name, value in self.losses(model, batch).items():
                totals[name] += value.item() * size
        return {name: total / rows for name, total in totals.items()}
