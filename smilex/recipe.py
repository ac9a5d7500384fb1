"""How a property model is trained: the settings that `smilex.finetune` and the scikit-learn estimators share."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from smilex.checks import count, number, switch
from smilex.errors import SmilexError
from smilex.precision import Precision, check_precision_name

_CHECKS: dict[str, Callable[[str, object], object]] = {
    "epochs": count,
    "patience": count,
    "batch_size": count,
    "learning_rate": number,
    "layer_decay": number,
    "dropout": number,
    "balance_classes": switch,
    "random_smiles": switch,
    "averaged_smiles": count,
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one model is trained; see `smilex.finetune` for the meaning of each setting. Its defaults stand here.

    Numbers of numpy, such as searches over settings draw them, become plain ones, which can be written as JSON.

    Raises
    ------
    SmilexError
        If a setting cannot be used.

    Examples
    --------
    >>> Recipe(epochs=5).batch_size
    32
    >>> Recipe(layer_decay=2.0)
    Traceback (most recent call last):
    ...
    smilex.errors.SmilexError: layer_decay lies above 0 and at most at 1, not at 2.0
    """

    epochs: int = 50
    patience: int = 10
    batch_size: int = 32
    learning_rate: float = 5e-4
    layer_decay: float = 1.0
    dropout: float | None = None
    balance_classes: bool = False
    random_smiles: bool = False
    averaged_smiles: int = 1
    precision: Precision | None = None

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            value = getattr(self, name)
            if name != "dropout" or value is not None:
                object.__setattr__(self, name, check(name, value))  # dataclasses set frozen fields so, too
        if not 0 < self.learning_rate < math.inf:
            raise SmilexError(f"learning_rate must be positive, not {self.learning_rate}")
        if not 0 < self.layer_decay <= 1:
            raise SmilexError(f"layer_decay lies above 0 and at most at 1, not at {self.layer_decay}")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise SmilexError(f"dropout is a share from 0 to below 1, not {self.dropout}")
        check_precision_name(self.precision)

    def model_fields(self) -> dict[str, Any]:
        """Return the settings that belong to the model, as fields of `smilex.modeling.ExLMConfig`."""
        dropout = {} if self.dropout is None else {"hidden_dropout_prob": self.dropout}
        return {"averaged_smiles": self.averaged_smiles, **dropout}
