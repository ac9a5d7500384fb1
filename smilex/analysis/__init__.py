"""What an encoder has learned, in figures, and what a prediction comes from, atom by atom.

Functions of arrays need numpy and little else. Functions of molecules load an encoder; they are imported, with torch,
when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smilex.analysis.attribution import Attribution, attribute
    from smilex.analysis.molecules import (
        alignment_and_uniformity,
        layer_ranks,
        prediction_entropy,
        retrieval,
        tanimoto_agreement,
    )
    from smilex.analysis.rank import effective_rank
    from smilex.analysis.similarity import alignment, neighbourhood_agreement, retrieval_accuracy, uniformity
    from smilex.analysis.summary import Analysis, analyze

_HOMES = {
    "Analysis": "smilex.analysis.summary",
    "Attribution": "smilex.analysis.attribution",
    "alignment": "smilex.analysis.similarity",
    "alignment_and_uniformity": "smilex.analysis.molecules",
    "analyze": "smilex.analysis.summary",
    "attribute": "smilex.analysis.attribution",
    "effective_rank": "smilex.analysis.rank",
    "layer_ranks": "smilex.analysis.molecules",
    "neighbourhood_agreement": "smilex.analysis.similarity",
    "prediction_entropy": "smilex.analysis.molecules",
    "retrieval": "smilex.analysis.molecules",
    "retrieval_accuracy": "smilex.analysis.similarity",
    "tanimoto_agreement": "smilex.analysis.molecules",
    "uniformity": "smilex.analysis.similarity",
}

__all__ = [
    "Analysis",
    "Attribution",
    "alignment",
    "alignment_and_uniformity",
    "analyze",
    "attribute",
    "effective_rank",
    "layer_ranks",
    "neighbourhood_agreement",
    "prediction_entropy",
    "retrieval",
    "retrieval_accuracy",
    "tanimoto_agreement",
    "uniformity",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'smilex.analysis' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
