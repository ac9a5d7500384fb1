import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smilex.modeling.rope import apply_rope_2d


def rotate_by_complex_numbers(x, position, base):
    """Rotary positions of one axis as multiplication by e^(i·angle), the definition of RoFormer."""
    width = x.shape[-1]
    frequency = torch.tensor([base ** (-2 * i / width) for i in range(width // 2)], dtype=torch.float64)
    angle = position[:, None, :, None] * frequency
    turned = torch.complex(x[..., : width // 2], x[..., width // 2 :]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], dim=-1)


@given(st.integers(0, 2**31), st.sampled_from([4, 8, 16, 32]))
def test_equals_rotation_of_complex_numbers(seed, width):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 3, 5, width, dtype=torch.float64, generator=generator)
    token = torch.randint(0, 500, (2, 5), generator=generator)
    state = torch.randint(0, 5, (2, 5), generator=generator)
    half = width // 2
    expected = torch.cat(
        [
            rotate_by_complex_numbers(x[..., :half], token, 10000.0),
            rotate_by_complex_numbers(x[..., half:], state, 10000.0),
        ],
        dim=-1,
    )
    torch.testing.assert_close(apply_rope_2d(x, token, state), expected, rtol=0, atol=1e-12)


def test_scores_depend_on_differences_of_positions_only():
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 1, 6, 16, dtype=torch.float64, generator=generator)
    token, state = torch.arange(6)[None], torch.tensor([[0, 1, 2, 0, 3, 4]])
    scores = [
        apply_rope_2d(query, token + shift, state + shift) @ apply_rope_2d(key, token + shift, state + shift).mT
        for shift in (0, 7)
    ]
    torch.testing.assert_close(scores[0], scores[1])


def test_origin_is_left_alone():
    x = torch.randn(1, 2, 3, 8)
    zero = torch.zeros(1, 3, dtype=torch.long)
    assert torch.equal(apply_rope_2d(x, zero, zero), x)


def test_head_width_must_be_a_multiple_of_four():
    zero = torch.zeros(1, 1, dtype=torch.long)
    with pytest.raises(ValueError, match="multiple of 4"):
        apply_rope_2d(torch.ones(1, 1, 1, 6), zero, zero)
