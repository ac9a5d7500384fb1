"""What the objectives with hidden tokens share: batches with masks, and figures of the predictions at them."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from smilex.checks import number
from smilex.data.batching import pad
from smilex.data.masking import IGNORED, MASKINGS, mask_tokens
from smilex.data.molecules import Molecule
from smilex.errors import SmilexError
from smilex.modeling import ExLMConfig, ExLMForMaskedLM
from smilex.modeling.encoder import ExLMPreTrainedModel
from smilex.objectives.base import Batch, Objective


class MaskingObjective(Objective):
    """An objective that hides tokens: it has a mask ratio and a way to choose which tokens."""

    def __init__(self, config: ExLMConfig, **settings: Any) -> None:
        super().__init__(config, **settings)
        self.mask_ratio = number("mask_ratio", self.settings["mask_ratio"])
        if not 0 < self.mask_ratio <= 1:
            raise SmilexError(f"mask_ratio is a share above 0 and at most 1, not {self.mask_ratio}")
        if self.settings["masking"] not in MASKINGS:
            raise SmilexError(f"masking is one of {', '.join(MASKINGS)}, not {self.settings['masking']!r}")

    def mask(self, molecules: list[Molecule], rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return ids with masks, and labels with the hidden ids and −100 elsewhere; both int64 (B, L)."""
        choice = (self.mask_ratio, self.config.mask_token_id, rng, self.settings["masking"])
        masked, labels = zip(*(mask_tokens(molecule, *choice) for molecule in molecules), strict=True)
        return (
            torch.from_numpy(pad(masked, self.config.pad_token_id)),
            torch.from_numpy(pad(labels, IGNORED)),
        )


class FillingObjective(MaskingObjective):
    """An objective whose model takes ids with masks and labels, and says what is likely at each mask."""

    defaults: ClassVar[Mapping[str, Any]] = {
        "mask_ratio": 0.15,
        "masking": "random",
        "random_smiles": False,
        "tokens_per_batch": 4096,
        "learning_rate": 5e-4,
    }

    def collate(self, molecules: list[Molecule], rng: np.random.Generator) -> Batch:
        """Return `input_ids` with masks and `labels` with the hidden ids, both int64 (B, L)."""
        input_ids, labels = self.mask(molecules, rng)
        return {"input_ids": input_ids, "labels": labels}

    def losses(self, model: ExLMPreTrainedModel, batch: Batch) -> dict[str, Tensor]:
        """Return the model's own loss."""
        return {"loss": model(**batch).loss}

    @torch.no_grad()
    def evaluate(self, model: ExLMPreTrainedModel, batches: Iterable[Batch]) -> dict[str, float]:
        """Measure what the model says at the masks.

        Returns
        -------
        dict
            "loss": the training loss, averaged over molecules; "masked_accuracy": share of masks whose most probable
            token is the hidden one; "perplexity": exp of the mean negative log-probability of the hidden tokens;
            "entropy": mean entropy of the prediction at a mask, in nats. The last three read each mask by itself.
        """
        loss = molecules = 0.0
        correct: list[Tensor] = []
        surprise: list[Tensor] = []
        entropy: list[Tensor] = []
        for batch in batches:
            labels = batch["labels"]
            output = model(**batch)
            loss += output.loss.item() * len(labels)
            molecules += len(labels)
            masked = labels != IGNORED
            counts = masked.sum(1)
            log_probs = cast("ExLMForMaskedLM", model).mask_log_probs(output, counts)  # (B, M, V)
            real = torch.arange(log_probs.shape[1], device=labels.device) < counts.unsqueeze(-1)
            log_probs, hidden = log_probs[real], labels[masked]  # both in order of molecule and place
            correct.append(log_probs.argmax(-1) == hidden)
            surprise.append(-log_probs.gather(-1, hidden.unsqueeze(-1)).squeeze(-1))
            entropy.append(-(log_probs.exp() * log_probs).sum(-1))
        return {
            "loss": loss / molecules,
            "masked_accuracy": torch.cat(correct).double().mean().item(),
            "perplexity": torch.cat(surprise).double().mean().exp().item(),
            "entropy": torch.cat(entropy).double().mean().item(),
        }
