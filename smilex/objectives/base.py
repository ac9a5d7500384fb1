"""The interface of an objective."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from smilex.modeling import ExLMConfig
from smilex.modeling.encoder import ExLMPreTrainedModel

Batch = dict[str, Tensor]


class Objective(ABC):
    """How a batch is made of molecules, and what is computed from it.

    Everything else (encoder, trainer, checkpoints, logging) is the same for all objectives.

    Parameters
    ----------
    config : ExLMConfig
        The encoder to train; `adapt_config` has been applied.
    mask_ratio : float
        Share of the ordinary tokens to hide, above 0 and at most 1.
    """

    name: ClassVar[str]
    model_class: ClassVar[type[ExLMPreTrainedModel]]

    def __init__(self, config: ExLMConfig, mask_ratio: float) -> None:
        self.config = config
        self.mask_ratio = mask_ratio

    @classmethod
    def adapt_config(cls, config: ExLMConfig) -> ExLMConfig:
        """Return a copy of the encoder's configuration with what the objective fixes in it."""
        return ExLMConfig(**config.own_fields())

    @abstractmethod
    def encoded_lengths(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions that the encoder processes for molecules of these lengths in tokens, for the token budget."""

    @abstractmethod
    def collate(self, rows: list[NDArray[np.int64]], rng: np.random.Generator) -> Batch:
        """Make a batch of tokenised molecules, each with [CLS] and [SEP]; all chance comes from `rng`."""

    @abstractmethod
    def loss(self, model: ExLMPreTrainedModel, batch: Batch) -> Tensor:
        """Return the loss of a batch, a scalar."""

    @abstractmethod
    def evaluate(self, model: ExLMPreTrainedModel, batches: Iterable[Batch]) -> dict[str, float]:
        """Measure a model in eval mode on held-out batches; "loss" is among the figures."""
