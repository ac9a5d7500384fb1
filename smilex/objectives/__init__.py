"""What an encoder is pretrained on: each objective is a collator and a loss."""

from smilex.errors import SmilexError
from smilex.objectives.base import Objective
from smilex.objectives.descriptors import DescriptorsObjective
from smilex.objectives.exlm import ExLMObjective
from smilex.objectives.mae_lm import MAELMObjective
from smilex.objectives.mexma import MEXMAObjective
from smilex.objectives.mirror import MirrorObjective
from smilex.objectives.mlm import MLMObjective

OBJECTIVES: dict[str, type[Objective]] = {
    objective.name: objective
    for objective in (
        ExLMObjective,
        MLMObjective,
        MAELMObjective,
        DescriptorsObjective,
        MirrorObjective,
        MEXMAObjective,
    )
}
"""Objectives by the name that `smilex.pretrain` takes."""

__all__ = [
    "OBJECTIVES",
    "DescriptorsObjective",
    "ExLMObjective",
    "MAELMObjective",
    "MEXMAObjective",
    "MLMObjective",
    "MirrorObjective",
    "Objective",
    "get_objective",
]


def get_objective(name: str) -> type[Objective]:
    """Return the objective called `name`.

    Raises
    ------
    SmilexError
        If there is none of that name.

    Examples
    --------
    >>> get_objective("exlm").name
    'exlm'
    """
    if name not in OBJECTIVES:
        raise SmilexError(f"unknown objective {name!r}; there are {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name]
