"""From vectors to scores of the vocabulary."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from smilex.modeling.config import ExLMConfig


class LanguageModelHead(nn.Module):
    """Dense, GELU, LayerNorm, then the token embedding's transpose plus a bias."""

    def __init__(self, config: ExLMConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x: Tensor, word_embeddings: Tensor) -> Tensor:
        """Score the vocabulary: x (…, d), word_embeddings (V, d), result (…, V)."""
        return F.linear(self.norm(F.gelu(self.dense(x))), word_embeddings, self.bias)

    def reset_bias(self) -> None:
        """Start the bias anew, unless it has been loaded: transformers knows the biases of torch's own layers only."""
        init.zeros_(self.bias)
