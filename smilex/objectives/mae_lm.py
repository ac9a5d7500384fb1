"""MAE-LM: a masked language model whose encoder never sees [MASK]."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smilex.data.masking import num_masks
from smilex.modeling.encoder import ExLMPreTrainedModel
from smilex.modeling.masked_autoencoder import ExLMForMaskedAutoencoding
from smilex.objectives.masked import FillingObjective


class MAELMObjective(FillingObjective):
    """Encode the visible tokens alone, at their places, and let a shallow decoder, thrown away later, find the others.

    Examples
    --------
    The encoder is spared a position for every mask:

    >>> from smilex.modeling import ExLMConfig
    >>> objective = MAELMObjective(ExLMConfig.from_preset("tiny"), mask_ratio=0.3)
    >>> objective.encoded_lengths(np.array([12, 42, 102])).tolist()
    [9, 30, 72]

    Notes
    -----
    Meng et al., ICLR 2024, arXiv 2302.02060. Inputs: single molecules. Batches and held-out figures are those of
    `MLMObjective`, as is the loss, the mean cross-entropy at the masks; [CLS] and [SEP] have one state.
    Recommendation: in place of MLM where only the vectors are wanted. After equal seconds a linear model on them has an
    RMSE of 1.112 ± 0.092 on ESOL, 1.396 ± 0.099 on MLM's (`benchmarks/results/objectives.md`); there is no head for
    `smilex.fill_mask`.
    """

    name: ClassVar[str] = "mae_lm"
    model_class: ClassVar[type[ExLMPreTrainedModel]] = ExLMForMaskedAutoencoding
    fixed_fields: ClassVar[Mapping[str, Any]] = {"num_states": 1}

    def encoded_lengths(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the visible tokens, [CLS] and [SEP] included."""
        return lengths - num_masks(lengths, self.mask_ratio)
