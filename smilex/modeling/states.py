"""State expansion: every [MASK], [CLS] and [SEP] is written k times (ExLM, arXiv 2501.13397)."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ExpandedStates:
    """A batch of expanded sequences; padding has the pad id and coordinates 0.

    Parameters
    ----------
    input_ids : Tensor, int64, shape (B, N)
        Token ids after the expansion.
    token_position : Tensor, int64, shape (B, N)
        Index of the position's token in the sequence before the expansion.
    state_index : Tensor, int64, shape (B, N)
        1 … k for the copies of an expanded token, 0 for an ordinary one.
    attention_mask : Tensor, bool, shape (B, N)
        True where there is a token, False at padding.
    """

    input_ids: Tensor
    token_position: Tensor
    state_index: Tensor
    attention_mask: Tensor


def expand_states(input_ids: Tensor, expand: Tensor, num_states: int, pad_id: int) -> ExpandedStates:
    """Write each token marked in `expand` `num_states` times and every other token once.

    Parameters
    ----------
    input_ids : Tensor, int64, shape (B, L)
        Token ids, padded with `pad_id`.
    expand : Tensor, bool, shape (B, L)
        The tokens to expand.
    num_states : int
        k, the number of copies.
    pad_id : int
        Id of [PAD]; padding is never expanded.

    Returns
    -------
    ExpandedStates
        N is the longest expanded length of the batch.

    Examples
    --------
    >>> ids = torch.tensor([[2, 7, 4, 9, 3]])  # [CLS] C [MASK] O [SEP]
    >>> expanded = expand_states(ids, ids < 5, num_states=2, pad_id=0)
    >>> expanded.token_position.tolist()
    [[0, 0, 1, 2, 2, 3, 4, 4]]
    >>> expanded.state_index.tolist()
    [[1, 2, 0, 1, 2, 0, 1, 2]]
    """
    copies = torch.where(expand, num_states, 1) * (input_ids != pad_id)
    ends = copies.cumsum(dim=1)  # (B, L): one past the last copy of each token
    lengths = ends[:, -1:]
    slots = torch.arange(int(lengths.max()), device=input_ids.device).expand(len(input_ids), -1).contiguous()
    attention_mask = slots < lengths
    # The token of a slot is the first one whose copies end after it. Slots of padding find none.
    token_position = torch.searchsorted(ends, slots, right=True).masked_fill(~attention_mask, 0)
    copy_index = slots - (ends - copies).gather(1, token_position) + 1
    is_state = expand.gather(1, token_position) & attention_mask
    return ExpandedStates(
        input_ids=input_ids.gather(1, token_position).masked_fill(~attention_mask, pad_id),
        token_position=token_position,
        state_index=copy_index * is_state,
        attention_mask=attention_mask,
    )


def compact(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the True entries of each row, first to last.

    Parameters
    ----------
    mask : Tensor, bool, shape (B, N)
        The entries to keep.

    Returns
    -------
    positions : Tensor, int64, shape (B, S)
        S is the largest count of a row; rows with fewer entries end in positions that are not marked.
    counts : Tensor, int64, shape (B,)
        Number of marked entries of each row.

    Examples
    --------
    >>> positions, counts = compact(torch.tensor([[True, False, True], [False, True, False]]))
    >>> positions[0].tolist(), int(positions[1, 0]), counts.tolist()
    ([0, 2], 1, [2, 1])
    """
    counts = mask.sum(dim=1)
    order = torch.argsort((~mask).to(torch.uint8), dim=1, stable=True)
    return order[:, : int(counts.max())], counts
