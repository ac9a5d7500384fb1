"""Learning rates that fall from the head of a property model to its embedding."""

import re
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from smilex.modeling import ExLMForMoleculeProperty

_LAYER = re.compile(r"exlm\.layers\.(\d+)\.")


def parameter_groups(
    model: ExLMForMoleculeProperty,
    learning_rate: float,
    layer_decay: float,
    weight_decay: float,
    decayed: Collection[str],
) -> list[dict[str, Any]]:
    """Sort the weights of a model into groups for an optimizer of torch, from the head down.

    A pretrained encoder has learned most in its lower layers, and they should change least [1]_.

    Parameters
    ----------
    model : ExLMForMoleculeProperty
        Whose weights to group.
    learning_rate : float
        Of the head.
    layer_decay : float
        The learning rate of what lies i steps below the head is ``learning_rate * layer_decay**i``: 1 for the last
        layer and the normalisation behind it, the number of layers for the first one, and 1 more for the embedding.
    weight_decay : float
        Weight decay of the `decayed` weights; the others have none.
    decayed : collection of str
        Names of weights, as in ``model.named_parameters()``.

    Returns
    -------
    list of dict
        Each with "params", "lr" and "weight_decay"; every weight that is trained stands in one of them.

    References
    ----------
    .. [1] Howard, Ruder, ACL 2018, arXiv 1801.06146; as a power of the depth: Clark et al., ICLR 2020,
       arXiv 2003.10555.

    Examples
    --------
    >>> from smilex.modeling import ExLMConfig
    >>> model = ExLMForMoleculeProperty(ExLMConfig.from_preset("tiny"))
    >>> [group["lr"] for group in parameter_groups(model, 1.0, 0.5, 0.0, ())]
    [1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125]
    """
    groups: defaultdict[tuple[int, bool], list[Any]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups[_depth(name, model.config.num_hidden_layers), name not in decayed].append(parameter)
    return [
        {
            "params": groups[depth, exempt],
            "lr": learning_rate * layer_decay**depth,
            "weight_decay": 0.0 if exempt else weight_decay,
        }
        for depth, exempt in sorted(groups)
    ]


def _depth(name: str, num_layers: int) -> int:
    """Count the steps below the head."""
    layer = _LAYER.match(name)
    if layer:
        return num_layers - int(layer[1])
    if name.startswith("exlm.final_norm."):
        return 1
    return num_layers + 1 if name.startswith("exlm.") else 0
