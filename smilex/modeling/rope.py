"""2D rotary positions (ExLM, arXiv 2501.13397): half of each head turns with the token, half with the state."""

import torch
from torch import Tensor


def rope_2d_tables(
    token_position: Tensor,
    state_index: Tensor,
    head_width: int,
    base: float = 10000.0,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines of the rotary angles, computed once for all layers of a batch.

    Parameters
    ----------
    token_position, state_index : Tensor, int64, shape (B, N)
        The two coordinates of each position.
    head_width : int
        Dimensions of a head, d_h; a multiple of 4.
    base : float, default 10000.0
        Base of the geometric series of wavelengths.
    dtype : torch.dtype, optional
        Type of the tables; torch's default type when not given.

    Returns
    -------
    cos, sin : Tensor, shape (B, 1, N, d_h)
        In quarters of the head: token, token, state, state; the sines of the first quarter of each pair are negative,
        as the rotation needs them.
    """
    if head_width % 4:
        raise ValueError(f"2D rotary positions need a head width that is a multiple of 4, not {head_width}")
    dtype = dtype or torch.get_default_dtype()
    # float64 keeps the angles exact for every type of the result; the tables are tiny.
    quarter = torch.arange(head_width // 4, dtype=torch.float64, device=token_position.device)
    frequency = base ** (-4.0 * quarter / head_width)
    coordinates = torch.stack([token_position, state_index], dim=-1)  # (B, N, 2)
    angle = coordinates.unsqueeze(-1) * frequency  # (B, N, 2, d_h / 4)
    cos, sin = angle.cos(), angle.sin()
    cos = torch.stack([cos, cos], dim=-2).flatten(-3).unsqueeze(1)
    sin = torch.stack([-sin, sin], dim=-2).flatten(-3).unsqueeze(1)
    return cos.to(dtype), sin.to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn queries or keys x, shape (B, H, N, d_h), by the angles of `rope_2d_tables`."""
    first, second, third, fourth = x.chunk(4, dim=-1)
    return x * cos + torch.cat([second, first, fourth, third], dim=-1) * sin


def apply_rope_2d(x: Tensor, token_position: Tensor, state_index: Tensor, base: float = 10000.0) -> Tensor:
    """Rotate the first half of each head by the token position and the second half by the state index.

    Each half is rotated as in RoFormer (arXiv 2104.09864) for d_h/2 dimensions with the "rotate half" pairing:
    the first quarter of the head pairs with the second, the third with the fourth.

    Parameters
    ----------
    x : Tensor, shape (B, H, N, d_h)
        Queries or keys.
    token_position, state_index : Tensor, int64, shape (B, N)
        Coordinates from `smilex.modeling.states.expand_states`.
    base : float, default 10000.0
        Base of the geometric series of wavelengths.

    Returns
    -------
    Tensor, shape (B, H, N, d_h)
        Same type as `x`.

    Examples
    --------
    >>> x = torch.ones(1, 1, 2, 4)
    >>> turned = apply_rope_2d(x, torch.tensor([[0, 1]]), torch.tensor([[0, 0]]))
    >>> [round(value, 3) for value in turned[0, 0, 1].tolist()]  # cos 1 − sin 1, cos 1 + sin 1, unturned, unturned
    [-0.301, 1.382, 1.0, 1.0]
    """
    return rotate(x, *rope_2d_tables(token_position, state_index, x.shape[-1], base, x.dtype))
