"""MLM: the plain masked language model, the baseline of ExLM."""

from typing import ClassVar

from smilex.modeling import ExLMConfig
from smilex.objectives.exlm import ExLMObjective


class MLMObjective(ExLMObjective):
    """ExLM with one state per mask: no transitions, cross-entropy at the masks.

    Examples
    --------
    >>> MLMObjective.adapt_config(ExLMConfig.from_preset("tiny")).num_states
    1

    Notes
    -----
    Devlin et al., NAACL 2019, arXiv 1810.04805, with every chosen token masked. Inputs, batches and held-out figures
    are those of `ExLMObjective`; the loss is averaged over masks instead of molecules.
    """

    name: ClassVar[str] = "mlm"

    @classmethod
    def adapt_config(cls, config: ExLMConfig) -> ExLMConfig:
        """Return a copy with one state per mask."""
        return ExLMConfig(**{**config.own_fields(), "num_states": 1})
