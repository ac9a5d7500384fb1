"""smilex in scikit-learn: a transformer, a regressor and a classifier whose X are molecules."""

from smilex.integrations.sklearn.embedder import SmilesEmbedder
from smilex.integrations.sklearn.models import SmilesClassifier, SmilesRegressor

__all__ = ["SmilesClassifier", "SmilesEmbedder", "SmilesRegressor"]
