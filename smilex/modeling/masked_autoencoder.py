"""An encoder that never sees [MASK], and a decoder that finds the hidden tokens (MAE-LM, arXiv 2302.02060).

Shapes: B molecules, L tokens, M masks, V vocabulary, d hidden size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.utils import ModelOutput

from smilex.modeling.config import ExLMConfig
from smilex.modeling.decoder import TokenDecoder
from smilex.modeling.encoder import _UNSET, ExLMModel, ExLMModelOutput, ExLMPreTrainedModel
from smilex.modeling.states import compact


@dataclass
class ExLMMaskedAutoencodingOutput(ModelOutput):
    """Predictions at the masks.

    Parameters
    ----------
    loss : Tensor, shape ()
        Mean cross-entropy at the masks; 0 without masks. Only with labels.
    logits : Tensor, shape (number of masks, V)
        Scores of the vocabulary at each mask, in order of molecules, then of places.
    """

    loss: Tensor | None = None
    logits: Tensor = _UNSET


class ExLMForMaskedAutoencoding(ExLMPreTrainedModel):
    """Encoder of the visible tokens, at their places, and a shallow decoder of all of them.

    The decoder has a third of the encoder's layers, at least one. It takes the encoder's vectors, and for each mask one
    learned vector, the same for all.

    Parameters
    ----------
    config : ExLMConfig
        Sizes and settings.

    Examples
    --------
    >>> model = ExLMForMaskedAutoencoding(ExLMConfig.from_preset("tiny")).eval()
    >>> ids = torch.tensor([[2, 20, 4, 21, 4, 3]])  # [CLS] token [MASK] token [MASK] [SEP]
    >>> model(ids).logits.shape
    torch.Size([2, 512])
    """

    def __init__(self, config: ExLMConfig) -> None:
        super().__init__(config)
        self.exlm = ExLMModel(config)
        self.mask_embedding = nn.Embedding(1, config.hidden_size)
        self.decoder = TokenDecoder(config, max(1, config.num_hidden_layers // 3))
        self.post_init()

    def encode(self, input_ids: Tensor) -> ExLMModelOutput:
        """Encode what is visible of ids (B, L): masks are cut out, and the other tokens keep their positions."""
        config = self.config
        positions, counts = compact((input_ids != config.mask_token_id) & (input_ids != config.pad_token_id))
        beyond = torch.arange(positions.shape[1], device=input_ids.device) >= counts.unsqueeze(-1)
        return self.exlm(
            input_ids.gather(1, positions).masked_fill(beyond, config.pad_token_id), token_position=positions
        )

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> ExLMMaskedAutoencodingOutput:
        """Predict the tokens at the masks and, with labels, compute the loss.

        Parameters
        ----------
        input_ids : Tensor, int64, shape (B, L)
            Token ids with [MASK] at the hidden places, padded with [PAD].
        labels : Tensor, int64, shape (B, L), optional
            The hidden id at each mask, −100 elsewhere.

        Returns
        -------
        ExLMMaskedAutoencodingOutput
        """
        encoded = self.encode(input_ids)
        positions, counts = compact(input_ids == self.config.mask_token_id)  # (B, M)
        real = torch.arange(positions.shape[1], device=input_ids.device) < counts.unsqueeze(-1)
        masks = self.mask_embedding(torch.zeros_like(positions))  # (B, M, d)
        # The coordinates say where a vector stands, so that the masks may come last.
        logits = self.decoder(
            torch.cat([encoded.last_hidden_state, masks], dim=1),
            torch.cat([encoded.token_position, positions], dim=1),
            torch.cat([encoded.state_index, torch.zeros_like(positions)], dim=1),
            torch.cat([encoded.attention_mask, real], dim=1),
            torch.cat([torch.zeros_like(encoded.attention_mask), real], dim=1),
            self.exlm.word_embeddings.weight,
        )
        output = ExLMMaskedAutoencodingOutput(logits=logits)
        if labels is not None:
            total = F.cross_entropy(logits.float(), labels[labels != -100], reduction="sum")
            output.loss = total / max(1, len(logits))
        return output

    @torch.no_grad()
    def mask_log_probs(self, output: ExLMMaskedAutoencodingOutput, num_masks: Tensor) -> Tensor:
        """Log-probability of every token at each mask.

        Parameters
        ----------
        output : ExLMMaskedAutoencodingOutput
            What the model returned for the masked molecules.
        num_masks : Tensor, int64, shape (B,)
            Masks of each molecule, M; later ones are padding.

        Returns
        -------
        Tensor, float32 or float64, shape (B, M, V)
        """
        log_probs = output.logits.log_softmax(-1, dtype=torch.promote_types(output.logits.dtype, torch.float32))
        real = torch.arange(int(num_masks.max()), device=num_masks.device) < num_masks.unsqueeze(-1)
        result = log_probs.new_zeros(*real.shape, log_probs.shape[-1])
        result[real] = log_probs
        return result
