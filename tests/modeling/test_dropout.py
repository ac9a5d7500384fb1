import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smilex.modeling.dropout import Dropout


@given(st.integers(0, 2**31), st.sampled_from([0.05, 0.1, 0.4, 0.9]))
def test_share_and_scale(seed, p):
    torch.manual_seed(seed)
    dropped = Dropout(p)(torch.ones(203, 501))
    share = (dropped == 0).double().mean().item()
    assert share == pytest.approx(p, abs=0.01)
    kept = dropped[dropped != 0]
    assert (kept == kept[0]).all()
    assert kept[0].item() == pytest.approx(256 / (256 - round(256 * p)))


def test_values_are_dropped_independently():
    torch.manual_seed(0)
    zero = (Dropout(0.5)(torch.ones(2, 200_000)) == 0).double()
    for shift in (1, 2, 4, 7, 8, 9, 64):  # the eight bytes of one draw, and the draws beside it
        both = (zero[:, shift:] * zero[:, :-shift]).mean().item()
        assert both == pytest.approx(0.25, abs=0.005), shift
    assert (zero[0] * zero[1]).mean().item() == pytest.approx(0.25, abs=0.005)


@pytest.mark.parametrize("p", [0.0, 0.001])
def test_nothing_is_dropped_below_half_a_step(p):
    x = torch.randn(5, 5)
    assert torch.equal(Dropout(p)(x), x)


def test_everything_is_dropped_at_one():
    assert (Dropout(1.0)(torch.ones(10)) == 0).all()


def test_eval_mode_returns_the_input():
    x = torch.randn(5)
    assert Dropout(0.5).eval()(x) is x


def test_gradient_flows_through_what_is_kept():
    torch.manual_seed(0)
    x = torch.randn(1000, requires_grad=True)
    dropped = Dropout(0.3)(x)
    dropped.sum().backward()
    assert torch.equal(x.grad == 0, dropped == 0)


def test_seeds():
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(Dropout(0.5)(torch.ones(100)))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
