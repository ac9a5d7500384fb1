"""Running a model over many molecules, row by row."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smilex.data.batching import LengthBatches, pad

Model = TypeVar("Model", bound=nn.Module)

TOKENS_PER_BATCH = 8192
"""Tokens that go through the encoder at once."""


def to_default_device(model: Model) -> Model:
    """Move a model to the first GPU, or to the CPU where there is none, and return it."""
    # PreTrainedModel.to is this one behind a wrapper that hides its type.
    nn.Module.to(model, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    return model


@torch.inference_mode()
def run_rows(
    function: Callable[[Tensor], Tensor],
    rows: Sequence[Sequence[int] | None],
    width: int,
    *,
    pad_id: int,
    device: torch.device,
) -> NDArray[np.float32]:
    """Apply `function` to molecules in batches of like lengths and put each result back into its row.

    Parameters
    ----------
    function : callable
        Takes token ids, int64 (B, L) padded with `pad_id`, and returns (B, width).
    rows : sequence of (sequence of int, or None)
        Token ids of each molecule; None where there is none.
    width : int
        Columns of the result.
    pad_id : int
        Id of [PAD].
    device : torch.device
        Where the batches go.

    Returns
    -------
    float32 array, shape (len(rows), width)
        NaN where a row is None. A row does not depend on the others, to float32 rounding.

    Examples
    --------
    >>> lengths = lambda ids: (ids != 0).sum(1, keepdim=True).float()
    >>> run_rows(lengths, [[2, 3], None, [2, 7, 3]], 1, pad_id=0, device=torch.device("cpu")).tolist()
    [[2.0], [nan], [3.0]]
    """
    result = np.full((len(rows), width), np.nan, dtype=np.float32)
    valid = np.array([index for index, row in enumerate(rows) if row is not None], dtype=np.int64)
    if not len(valid):
        return result
    ids = [np.asarray(row, dtype=np.int64) for row in rows if row is not None]
    batches = LengthBatches(np.array([len(row) for row in ids]), TOKENS_PER_BATCH)
    for number in range(batches.per_epoch):
        chosen = batches[number]
        tokens = torch.from_numpy(pad([ids[index] for index in chosen], pad_id)).to(device)
        result[valid[chosen]] = function(tokens).float().cpu().numpy()
    return result
