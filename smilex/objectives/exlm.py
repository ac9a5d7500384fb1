"""ExLM: masked tokens with several states each, aligned by dynamic programming."""

from collections.abc import Iterable
from typing import ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smilex.data.batching import pad
from smilex.data.masking import IGNORED, mask_tokens, num_masks
from smilex.modeling import ExLMForMaskedLM
from smilex.modeling.encoder import ExLMPreTrainedModel
from smilex.objectives.base import Batch, Objective


class ExLMObjective(Objective):
    """Hide a share of the tokens, give each k states, and maximise the likelihood of the hidden ones over all paths.

    Examples
    --------
    >>> from smilex.modeling import ExLMConfig
    >>> objective = ExLMObjective(ExLMConfig.from_preset("tiny"), mask_ratio=0.15)
    >>> batch = objective.collate([np.array([2, 20, 21, 22, 3])], np.random.default_rng(0))
    >>> sorted(batch), int((batch["input_ids"] == 4).sum())
    (['input_ids', 'labels'], 1)

    Notes
    -----
    Zheng et al., ICML 2025, arXiv 2501.13397. Inputs: single molecules. Relations: with k = 1 and no transitions it is
    `MLMObjective`.
    """

    name: ClassVar[str] = "exlm"
    model_class: ClassVar[type[ExLMPreTrainedModel]] = ExLMForMaskedLM

    def encoded_lengths(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Length of the expanded sequence: every mask, [CLS] and [SEP] k times."""
        return lengths + (self.config.num_states - 1) * (num_masks(lengths, self.mask_ratio) + 2)

    def collate(self, rows: list[NDArray[np.int64]], rng: np.random.Generator) -> Batch:
        """Return `input_ids` with masks and `labels` with the hidden ids, both int64 (B, L)."""
        masked, labels = zip(
            *(mask_tokens(row, self.mask_ratio, self.config.mask_token_id, rng) for row in rows), strict=True
        )
        return {
            "input_ids": torch.from_numpy(pad(list(masked), self.config.pad_token_id)),
            "labels": torch.from_numpy(pad(list(labels), IGNORED)),
        }

    def loss(self, model: ExLMPreTrainedModel, batch: Batch) -> Tensor:
        """Return the model's own loss."""
        return model(**batch).loss

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
