"""Size and settings of an ExLM encoder."""

from typing import Any

from transformers import PreTrainedConfig

import smilex
from smilex.errors import SmilexError

PRESETS: dict[str, dict[str, int]] = {
    "tiny": {"num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512},
    "small": {"num_hidden_layers": 6, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
    "base": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
}
"""Named sizes; base is the paper's."""


class ExLMConfig(PreTrainedConfig):
    """Configuration of `ExLMModel` and of the models built on it.

    Parameters
    ----------
    vocab_size : int, default 512
        Rows of the token embedding; at least the tokenizer's length.
    hidden_size : int, default 256
        d, the width of the encoder.
    num_hidden_layers : int, default 6
        Transformer layers.
    num_attention_heads : int, default 4
        Attention heads, and link heads of the transitions; d divided by it must be a multiple of 4.
    intermediate_size : int, default 1024
        Width of the feed-forward layers.
    hidden_dropout_prob : float, default 0.1
        Dropout on the embedding and on what each sublayer adds.
    attention_probs_dropout_prob : float, default 0.0
        Dropout on the attention weights; with it, attention on a CPU takes three times as long.
    num_states : int, default 4
        k, states per mask. 1 makes a plain masked language model without transitions.
    transitions : bool, default True
        Whether it is learned which states follow which; otherwise all paths through the states are equally likely. The
        paper's ablation.
    rotary_2d : bool, default True
        Whether a state stands where its token stands and has its index as a second coordinate; otherwise each state is
        a place of its own in the expanded sequence. The paper's ablation.
    first_expanded_layer : int, default 0
        Layers below it see every token once, [MASK] included, which is faster; the states come apart in it and above.
        The paper expands below the first layer, 0.
    max_position_embeddings : int, default 512
        Longest molecule in tokens, [CLS] and [SEP] included.
    layer_norm_eps : float, default 1e-5
        Epsilon of the layer normalisations.
    initializer_range : float, default 0.02
        Standard deviation of the initial weights.
    rope_base : float, default 10000.0
        Base of the rotary wavelengths.
    pooling : {"cls", "mean"}, default "mean"
        What `ExLMForMoleculeProperty` reads a molecule from: the first state of [CLS], or the mean over its ordinary
        tokens.
    averaged_smiles : int, default 1
        SMILES of a molecule that a prediction is the mean over: the canonical one and, above 1, random ones. Who
        predicts follows it, see `smilex.prediction.predict_rows`; the model itself reads what it is given.
    pad_token_id, cls_token_id, sep_token_id, mask_token_id : int
        Ids of the special tokens of `smilex.SmilesTokenizer`.
    smilex_version : str
        Version of smilex that wrote the configuration.

    Raises
    ------
    SmilexError
        If the sizes do not fit each other.

    Examples
    --------
    >>> ExLMConfig.from_preset("tiny", vocab_size=300).hidden_size
    128
    """

    model_type = "exlm"

    vocab_size: int = 512
    hidden_size: int = 256
    num_hidden_layers: int = 6
    num_attention_heads: int = 4
    intermediate_size: int = 1024
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.0
    num_states: int = 4
    transitions: bool = True
    rotary_2d: bool = True
    first_expanded_layer: int = 0
    max_position_embeddings: int = 512
    layer_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    rope_base: float = 10000.0
    pooling: str = "mean"
    averaged_smiles: int = 1
    pad_token_id: int = 0
    cls_token_id: int = 2
    sep_token_id: int = 3
    mask_token_id: int = 4
    smilex_version: str = smilex.__version__

    def __post_init__(self, **kwargs: object) -> None:
        """Check that the sizes fit each other."""
        super().__post_init__(**kwargs)
        if self.hidden_size % (4 * self.num_attention_heads):
            raise SmilexError(
                f"hidden_size {self.hidden_size} over {self.num_attention_heads} heads does not give a head width that "
                "is a multiple of 4, which 2D rotary positions need"
            )
        if self.num_states < 1:
            raise SmilexError(f"num_states is the number of states per mask, at least 1, not {self.num_states}")
        if not 0 <= self.first_expanded_layer < self.num_hidden_layers:
            raise SmilexError(
                f"first_expanded_layer is one of the {self.num_hidden_layers} layers, from 0, not "
                f"{self.first_expanded_layer}"
            )
        if self.pooling not in {"cls", "mean"}:
            raise SmilexError(f"pooling is 'cls' or 'mean', not {self.pooling!r}")
        if self.averaged_smiles < 1:
            raise SmilexError(f"averaged_smiles must be at least 1, not {self.averaged_smiles}")

    def own_fields(self) -> dict[str, Any]:
        """Return the fields listed above, without what transformers adds; ``ExLMConfig(**fields)`` is a plain copy."""
        return {name: getattr(self, name) for name in ExLMConfig.__annotations__}

    @classmethod
    def from_preset(cls, name: str, **overrides: Any) -> "ExLMConfig":
        """Build the configuration of a named size ("tiny", "small", "base"), with any field overridden."""
        if name not in PRESETS:
            raise SmilexError(f"unknown model size {name!r}; there are {', '.join(PRESETS)}, or pass an ExLMConfig")
        settings: dict[str, Any] = {**PRESETS[name], **overrides}
        return cls(**settings)
