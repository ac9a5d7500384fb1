"""The ExLM encoder: a pre-LayerNorm transformer over expanded states with 2D rotary positions (arXiv 2501.13397).

Shapes: B molecules, L tokens, N expanded positions, H heads of width d_h, d = H · d_h.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from smilex.modeling.config import ExLMConfig
from smilex.modeling.dropout import Dropout
from smilex.modeling.language_model_head import LanguageModelHead
from smilex.modeling.rope import rope_2d_tables, rotate
from smilex.modeling.states import expand_states

_UNSET: Any = None  # ModelOutput asks for a default of every field; the models fill them


@dataclass
class ExLMModelOutput(ModelOutput):
    """What the encoder says of each expanded position.

    Parameters
    ----------
    last_hidden_state : Tensor, shape (B, N, d)
        Final vectors. Position 0 is the first state of [CLS].
    input_ids : Tensor, int64, shape (B, N)
        Expanded token ids.
    token_position, state_index : Tensor, int64, shape (B, N)
        Index of the token before the expansion, and 1 … k for its states, 0 for an ordinary token.
    attention_mask : Tensor, bool, shape (B, N)
        False at padding.
    hidden_states : tuple of Tensor, each (B, N, d), optional
        The embedding and the output of every layer, when asked for; as elsewhere in transformers, the last one is
        `last_hidden_state`, after the final LayerNorm.
    """

    last_hidden_state: Tensor = _UNSET
    input_ids: Tensor = _UNSET
    token_position: Tensor = _UNSET
    state_index: Tensor = _UNSET
    attention_mask: Tensor = _UNSET
    hidden_states: tuple[Tensor, ...] | None = None

    def pool(self, pooling: str) -> Tensor:
        """One vector a molecule, shape (B, d).

        "cls" takes the first state of [CLS]; "mean" averages over the ordinary tokens, without the states.
        """
        if pooling == "cls":
            return self.last_hidden_state[:, 0]
        ordinary = (self.attention_mask & (self.state_index == 0)).unsqueeze(-1).to(self.last_hidden_state.dtype)
        return (self.last_hidden_state * ordinary).sum(1) / ordinary.sum(1).clamp_min(1.0)


class ExLMAttention(nn.Module):
    """Multi-head self-attention; queries and keys are turned by their 2D positions."""

    def __init__(self, config: ExLMConfig) -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.dropout = config.attention_probs_dropout_prob
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        """Attend from every position to every valid one; x and result (B, N, d)."""
        batch, length, _ = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)  # (3, B, H, N, d_h)
        # Under autocast the linear layers answer in bfloat16; attention stays in the precision of the vectors.
        with torch.autocast(x.device.type, enabled=False):
            query, key, value = qkv.to(x.dtype)
            query, key = rotate(query, cos, sin), rotate(key, cos, sin)
            dropout = self.dropout if self.training else 0.0
            context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return self.output(context.transpose(1, 2).flatten(2))


class ExLMLayer(nn.Module):
    """Pre-LayerNorm transformer layer: attention, then feed-forward, each added to its input."""

    def __init__(self, config: ExLMConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.attention = ExLMAttention(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.hidden_size, config.intermediate_size),
            nn.GELU(),
            nn.Linear(config.intermediate_size, config.hidden_size),
        )
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        """Return the next hidden states, (B, N, d)."""
        x = x + self.dropout(self.attention(self.attention_norm(x), cos, sin, mask))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


def attention_inputs(
    token_position: Tensor, state_index: Tensor, attention_mask: Tensor, config: ExLMConfig, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Compute what every layer takes beside the vectors, once for all layers of a batch.

    Parameters
    ----------
    token_position, state_index : Tensor, int64, shape (B, N)
        Coordinates of each position.
    attention_mask : Tensor, bool, shape (B, N)
        False at padding.
    config : ExLMConfig
        Width of the heads and base of the wavelengths.
    dtype : torch.dtype
        Type of the vectors.

    Returns
    -------
    cos, sin : Tensor, shape (B, 1, N, d_h)
        Tables of the rotary positions.
    mask : Tensor, bool, shape (B, 1, 1, N), or None
        Who may be attended to; None for everybody.
    """
    head_width = config.hidden_size // config.num_attention_heads
    if not config.rotary_2d:  # the states before a position move it along
        token_position = token_position + (state_index > 1).cumsum(1)
        state_index = torch.zeros_like(state_index)
    cos, sin = rope_2d_tables(token_position, state_index, head_width, config.rope_base, dtype=dtype)
    # Batches of one length have no padding, and attention without a mask is faster.
    mask = None if bool(attention_mask.all()) else attention_mask[:, None, None, :]
    return cos, sin, mask


class ExLMPreTrainedModel(PreTrainedModel):
    """What every ExLM model shares: configuration class, weight names, initial weights N(0, 0.02).

    `ExLMForMaskedLM` starts its transitions otherwise, see there.
    """

    config_class = ExLMConfig
    base_model_prefix = "exlm"
    _no_split_modules = ["ExLMLayer"]  # noqa: RUF012 (the base class declares it so)
    _supports_sdpa = True

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, LanguageModelHead):
            module.reset_bias()


class ExLMModel(ExLMPreTrainedModel):
    """The encoder: token ids in, a vector for every expanded position out.

    [CLS], [SEP] and every [MASK] are expanded into k states; other tokens stay single.

    Parameters
    ----------
    config : ExLMConfig
        Sizes and settings.

    Notes
    -----
    Zheng et al., "ExLM: Rethinking the impact of [MASK] tokens in masked language models", ICML 2025,
    arXiv 2501.13397.

    Examples
    --------
    >>> model = ExLMModel(ExLMConfig.from_preset("tiny")).eval()
    >>> output = model(torch.tensor([[2, 20, 21, 3]]))  # [CLS], two tokens, [SEP]; k = 4
    >>> output.last_hidden_state.shape, output.pool("cls").shape
    (torch.Size([1, 10, 128]), torch.Size([1, 128]))
    """

    # What heads leave in a saved directory; AutoModel would report it as unexpected.
    _keys_to_ignore_on_load_unexpected = [r"^lm_head\.", r"^transitions\.", r"^(dense|output)\.", r"^target_"]  # noqa: RUF012

    def __init__(self, config: ExLMConfig) -> None:
        super().__init__(config)
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.embedding_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.embedding_dropout = Dropout(config.hidden_dropout_prob)
        self.layers = nn.ModuleList(ExLMLayer(config) for _ in range(config.num_hidden_layers))
        self.final_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the token embedding."""
        return self.word_embeddings

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        token_position: Tensor | None = None,
        output_hidden_states: bool = False,
        **_: object,
    ) -> ExLMModelOutput:
        """Encode a batch.

        Parameters
        ----------
        input_ids : Tensor, int64, shape (B, L)
            Token ids from `smilex.SmilesTokenizer`, padded with [PAD].
        attention_mask : Tensor, shape (B, L), optional
            0 at padding; derived from the ids when not given.
        token_position : Tensor, int64, shape (B, L), optional
            Where each token stands; by default one after the other from 0. With it, tokens that are left out leave a
            gap.
        output_hidden_states : bool, default False
            Also return the vectors below every layer and at the end.

        Returns
        -------
        ExLMModelOutput
        """
        config = cast("ExLMConfig", self.config)
        if attention_mask is not None:
            input_ids = input_ids.masked_fill(attention_mask == 0, config.pad_token_id)
        special = torch.isin(
            input_ids,
            torch.tensor([config.cls_token_id, config.sep_token_id, config.mask_token_id], device=input_ids.device),
        )
        expanded = expand_states(input_ids, special, config.num_states, pad_id=config.pad_token_id)
        token = expanded.token_position
        position = token
        if token_position is not None:
            position = token_position.gather(1, token).masked_fill(~expanded.attention_mask, 0)
        first = config.first_expanded_layer
        below: list[Tensor] = []
        if first:
            x, below = self._run_tokens(input_ids, token_position, special)
            x, *below = (each.gather(1, token.unsqueeze(-1).expand(-1, -1, each.shape[-1])) for each in (x, *below))
        else:
            x = self._embed(expanded.input_ids)
        where = attention_inputs(position, expanded.state_index, expanded.attention_mask, config, x.dtype)
        for layer in self.layers[first:]:
            if output_hidden_states:
                below.append(x)
            x = layer(x, *where)
        last = self.final_norm(x)
        return ExLMModelOutput(
            last_hidden_state=last,
            input_ids=expanded.input_ids,
            token_position=position,
            state_index=expanded.state_index,
            attention_mask=expanded.attention_mask,
            hidden_states=(*below, last) if output_hidden_states else None,
        )

    def _embed(self, ids: Tensor) -> Tensor:
        return self.embedding_dropout(self.embedding_norm(self.word_embeddings(ids)))

    def _run_tokens(
        self, input_ids: Tensor, token_position: Tensor | None, special: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Run the layers below the expansion as a plain encoder; return their last vectors, and those below each.

        Vectors have shape (B, L, d). [CLS], [SEP] and [MASK], (B, L) in `special`, have the index of a first state.
        """
        config = cast("ExLMConfig", self.config)
        if token_position is None:
            token_position = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        x = self._embed(input_ids)
        where = attention_inputs(token_position, special.long(), input_ids != config.pad_token_id, config, x.dtype)
        below = []
        for layer in self.layers[: config.first_expanded_layer]:
            below.append(x)
            x = layer(x, *where)
        return x, below
