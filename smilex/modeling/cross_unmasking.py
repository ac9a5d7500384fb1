"""Masked tokens of one way of writing a molecule, found with the vector of another (MEXMA, arXiv 2409.12737).

Shapes: n molecules, L tokens, V vocabulary, d hidden size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.utils import ModelOutput

from smilex.errors import SmilexError
from smilex.modeling.config import ExLMConfig
from smilex.modeling.decoder import TokenDecoder
from smilex.modeling.encoder import _UNSET, ExLMModel, ExLMPreTrainedModel

HEAD_LAYERS = 2


@dataclass
class ExLMCrossUnmaskingOutput(ModelOutput):
    """Vectors of the molecules, and predictions at the masks.

    Parameters
    ----------
    sentences : Tensor, shape (2n, d)
        Final vectors of [CLS], nothing masked.
    logits : Tensor, shape (number of masks, V)
        Scores of the vocabulary at each mask, in order of rows, then of places.
    """

    sentences: Tensor = _UNSET
    logits: Tensor = _UNSET


class ExLMForCrossUnmasking(ExLMPreTrainedModel):
    """Encoder and a head of two layers that reads masked tokens beside the [CLS] vector of their twin.

    Parameters
    ----------
    config : ExLMConfig
        With ``num_states=1``: a mask has one position, which predicts its token.

    Raises
    ------
    SmilexError
        If the configuration has more states.

    Examples
    --------
    >>> model = ExLMForCrossUnmasking(ExLMConfig.from_preset("tiny", num_states=1)).eval()
    >>> clean, masked = torch.tensor([[2, 20, 21, 3], [2, 21, 20, 3]]), torch.tensor([[2, 4, 21, 3], [2, 21, 4, 3]])
    >>> output = model(clean, masked)
    >>> output.sentences.shape, output.logits.shape
    (torch.Size([2, 128]), torch.Size([2, 512]))
    """

    def __init__(self, config: ExLMConfig) -> None:
        if config.num_states != 1:
            raise SmilexError(f"cross-unmasking needs num_states=1, not {config.num_states}")
        super().__init__(config)
        self.exlm = ExLMModel(config)
        self.head = TokenDecoder(config, HEAD_LAYERS)
        self.post_init()

    def forward(self, input_ids: Tensor, masked_ids: Tensor) -> ExLMCrossUnmaskingOutput:
        """Encode molecules clean and masked, and predict the masked tokens.

        Parameters
        ----------
        input_ids : Tensor, int64, shape (2n, L)
            n molecules, then the same ones written in another way, padded with [PAD].
        masked_ids : Tensor, int64, shape (2n, L)
            The same with [MASK] at the hidden places.

        Returns
        -------
        ExLMCrossUnmaskingOutput
        """
        sentences = self.exlm(input_ids).pool("cls")
        masked = self.exlm(masked_ids)
        of_twin = sentences.roll(len(sentences) // 2, dims=0).unsqueeze(1)
        logits = self.head(
            torch.cat([of_twin, masked.last_hidden_state[:, 1:]], dim=1),
            masked.token_position,
            masked.state_index,
            masked.attention_mask,
            masked_ids == self.config.mask_token_id,
            self.exlm.word_embeddings.weight,
        )
        return ExLMCrossUnmaskingOutput(sentences=sentences, logits=logits)
