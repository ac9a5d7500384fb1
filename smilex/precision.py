"""The arithmetic that a model trains in: single precision, or bfloat16 where the hardware multiplies it faster."""

from typing import Any, Literal, cast, get_args

from smilex.errors import SmilexError

Precision = Literal["fp32", "bf16"]


def check_precision_name(precision: object) -> None:
    """Refuse whatever is no precision; None leaves it to `choose_precision`.

    Raises
    ------
    SmilexError
        If it is neither "fp32", "bf16" nor None.
    """
    if precision not in (None, *get_args(Precision)):
        raise SmilexError(f"precision is 'fp32' or 'bf16', not {precision!r}")


def choose_precision(precision: str | None) -> Precision:
    """Return the precision to train in.

    Parameters
    ----------
    precision : {"fp32", "bf16"} or None
        What was asked for; None takes bf16 on a GPU that computes in it, and fp32 elsewhere.

    Returns
    -------
    {"fp32", "bf16"}

    Raises
    ------
    SmilexError
        If there is no such precision.

    Examples
    --------
    >>> choose_precision("bf16")
    'bf16'
    """
    import torch

    check_precision_name(precision)
    if precision is None:
        on_gpu = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16" if on_gpu else "fp32"
    return cast("Precision", precision)


def trainer_precision(precision: Precision) -> dict[str, Any]:
    """Put a precision into arguments of `transformers.TrainingArguments`.

    Weights, optimiser, attention, transitions and losses stay float32 in either.

    Examples
    --------
    >>> trainer_precision("fp32")
    {}
    """
    import torch

    if precision == "fp32":
        return {}
    # Without use_cpu transformers refuses bf16 on a computer that has no GPU.
    return {"bf16": True, "use_cpu": not torch.cuda.is_available()}
