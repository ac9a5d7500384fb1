"""MEXMA: two ways of writing a molecule, whose vectors agree and help to find each other's masked tokens."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from smilex.data.batching import pad
from smilex.data.masking import IGNORED
from smilex.data.molecules import Molecule
from smilex.data.random_smiles import RandomSmiles
from smilex.modeling import ExLMConfig
from smilex.modeling.cross_unmasking import ExLMForCrossUnmasking
from smilex.modeling.encoder import ExLMPreTrainedModel
from smilex.objectives.base import Batch
from smilex.objectives.masked import MaskingObjective

KOLEO_WEIGHT = 0.01


class MEXMAObjective(MaskingObjective):
    """Align the canonical SMILES of a molecule with a random one, and find the masked tokens of each with the other.

    Examples
    --------
    >>> objective = MEXMAObjective(ExLMConfig.from_preset("tiny"))
    >>> batch = objective.collate([Molecule.read("CCOC(C)=O")], np.random.default_rng(0))
    >>> {name: len(tensor) for name, tensor in batch.items()}
    {'input_ids': 2, 'masked_ids': 2, 'labels': 2}

    Notes
    -----
    Janeiro et al., ACL 2025, arXiv 2409.12737. Inputs: single molecules; their canonical SMILES are one language and
    random SMILES the other. The vector of a molecule is that of [CLS], which has one state, as masks have. Of several
    processes that train together, each looks for the nearest other molecules in its own batch. Recommendation: for
    longer training than a few minutes. After so little it makes all vectors alike: retrieval falls from 0.507 to 0.149
    where it follows `ExLMObjective` (`benchmarks/results/objectives.md`).
    """

    name: ClassVar[str] = "mexma"
    model_class: ClassVar[type[ExLMPreTrainedModel]] = ExLMForCrossUnmasking
    defaults: ClassVar[Mapping[str, Any]] = {
        "mask_ratio": 0.4,
        "masking": "random",
        "tokens_per_batch": 4096,
        "learning_rate": 1e-4,
    }
    fixed_fields: ClassVar[Mapping[str, Any]] = {"num_states": 1, "attention_probs_dropout_prob": 0.0}

    def __init__(self, config: ExLMConfig, **settings: Any) -> None:
        super().__init__(config, **settings)
        self._random_smiles = RandomSmiles(self.config.max_position_embeddings)

    def encoded_lengths(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count four passes; a random SMILES is about as long as the canonical one."""
        return 4 * lengths

    def collate(self, molecules: list[Molecule], rng: np.random.Generator) -> Batch:
        """Return `input_ids`, `masked_ids` and `labels`, each int64 (2n, L): the molecules, then random SMILES of them.

        `labels` has the hidden id at each mask and −100 elsewhere.
        """
        twins = [self._random_smiles.twin(molecule, rng) for molecule in molecules]
        both = [*molecules, *twins]
        masked_ids, labels = self.mask(both, rng)
        input_ids = pad([molecule.input_ids for molecule in both], self.config.pad_token_id)
        return {"input_ids": torch.from_numpy(input_ids), "masked_ids": masked_ids, "labels": labels}

    def losses(self, model: ExLMPreTrainedModel, batch: Batch) -> dict[str, Tensor]:
        """Return the weighted sum, and beside it what the sum is of.

        Returns
        -------
        dict
            "loss" = "alignment_loss" + "token_loss" + 0.01 · "koleo_loss": mean squared difference of the two vectors
            of a molecule; cross-entropy at the masks of both; and how close the nearest other molecules are.
        """
        output = model(batch["input_ids"], batch["masked_ids"])
        first, second = output.sentences.chunk(2)
        hidden = batch["labels"] != IGNORED
        entropy = F.cross_entropy(output.logits.float(), batch["labels"][hidden], reduction="none")
        of_first = int(hidden[: len(first)].sum())
        parts = {
            "alignment_loss": F.mse_loss(first, second),
            "token_loss": (entropy[:of_first].mean() + entropy[of_first:].mean()) / 2,
            "koleo_loss": (koleo(first) + koleo(second)) / 2,
        }
        loss = parts["alignment_loss"] + parts["token_loss"] + KOLEO_WEIGHT * parts["koleo_loss"]
        return {"loss": loss, **parts}


def koleo(vectors: Tensor) -> Tensor:
    """Penalise vectors that crowd together: −mean log of the distance of each one from its nearest other one.

    Parameters
    ----------
    vectors : Tensor, shape (n, d)
        They are normalised to length 1 first.

    Returns
    -------
    Tensor, shape ()
        In float32 or float64; finite, with finite gradients, for equal vectors too; 0 for a single one.

    Notes
    -----
    Kozachenko–Leonenko estimate of the entropy; Sablayrolles et al., ICLR 2019, arXiv 1806.03198.

    Examples
    --------
    >>> round(koleo(torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])).item(), 4)  # −log √2
    -0.3466
    """
    unit = F.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)
    if len(unit) < 2:
        return unit.sum() * 0.0
    with torch.no_grad():
        nearest = (unit @ unit.T).fill_diagonal_(-torch.inf).argmax(-1)
    return -((unit - unit[nearest]).norm(dim=-1) + 1e-8).log().mean()
