"""The ExLM encoder and its heads, as transformers classes.

Importing this package registers them with the Auto classes, so that ``AutoConfig`` and ``AutoModel*`` load a
directory that smilex saved.
"""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
)

from smilex.modeling.config import ExLMConfig
from smilex.modeling.encoder import ExLMModel
from smilex.modeling.masked_lm import ExLMForMaskedLM
from smilex.modeling.molecule_property import ExLMForMoleculeProperty

__all__ = ["ExLMConfig", "ExLMForMaskedLM", "ExLMForMoleculeProperty", "ExLMModel"]

AutoConfig.register(ExLMConfig.model_type, ExLMConfig, exist_ok=True)
AutoModel.register(ExLMConfig, ExLMModel, exist_ok=True)
AutoModelForMaskedLM.register(ExLMConfig, ExLMForMaskedLM, exist_ok=True)
AutoModelForSequenceClassification.register(ExLMConfig, ExLMForMoleculeProperty, exist_ok=True)
