"""What an encoder is pretrained on: each objective is a collator and a loss."""

from smilex.errors import SmilexError
from smilex.objectives.base import Objective
from smilex.objectives.exlm import ExLMObjective
from smilex.objectives.mlm import MLMObjective

OBJECTIVES: dict[str, type[Objective]] = {objective.name: objective for objective in (ExLMObjective, MLMObjective)}
"""Objectives by the name that `smilex.pretrain` takes."""

__all__ = ["OBJECTIVES", "ExLMObjective", "MLMObjective", "Objective", "get_objective"]


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
