"""Transformer layers on top of the encoder, for objectives that throw them away afterwards."""

from torch import Tensor, nn

from smilex.modeling.config import ExLMConfig
from smilex.modeling.encoder import ExLMLayer, attention_inputs
from smilex.modeling.language_model_head import LanguageModelHead


class TokenDecoder(nn.Module):
    """Layers like the encoder's over given vectors, and a language-model head that shares the token embedding.

    Parameters
    ----------
    config : ExLMConfig
        Sizes of the layers.
    num_layers : int
        How many layers.
    """

    def __init__(self, config: ExLMConfig, num_layers: int) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(ExLMLayer(config) for _ in range(num_layers))
        self.norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.head = LanguageModelHead(config)

    def forward(
        self,
        x: Tensor,
        token_position: Tensor,
        state_index: Tensor,
        attention_mask: Tensor,
        predicted: Tensor,
        word_embeddings: Tensor,
    ) -> Tensor:
        """Score the vocabulary where it is asked for.

        Parameters
        ----------
        x : Tensor, shape (B, N, d)
            Vectors, in any order: their coordinates say where each one stands.
        token_position, state_index : Tensor, int64, shape (B, N)
            Coordinates of each vector.
        attention_mask : Tensor, bool, shape (B, N)
            False at padding.
        predicted : Tensor, bool, shape (B, N)
            Where a token is to be predicted.
        word_embeddings : Tensor, shape (V, d)
            The token embedding.

        Returns
        -------
        Tensor, shape (number of predicted positions, V)
            In order of molecules, then of positions.
        """
        where = attention_inputs(token_position, state_index, attention_mask, self.config, x.dtype)
        for layer in self.layers:
            x = layer(x, *where)
        return self.head(self.norm(x[predicted]), word_embeddings)
