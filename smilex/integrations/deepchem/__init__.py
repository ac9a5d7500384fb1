"""smilex in DeepChem: a featurizer, and a model that DeepChem fine-tunes.

DeepChem is an extra: ``pip install 'smilex[deepchem]'``, with Python < 3.12. Where this package is imported before
DeepChem, the messages that DeepChem's import prints about other optional packages stay off the terminal.
"""

from smilex.integrations.deepchem.featurizer import ExLMFeaturizer
from smilex.integrations.deepchem.model import ExLMTorchModel

__all__ = ["ExLMFeaturizer", "ExLMTorchModel"]
