import pytest

from smilex.budget import Budget, learning_rate_factor
from smilex.errors import SmilexError


def test_epochs_become_steps():
    assert Budget.choose(None, None, 1.5, per_epoch=7).steps == 11


@pytest.mark.parametrize("given", [(None, None, None), (1, 2, None), (1, None, 1), (1, 1, 1)])
def test_exactly_one_setting(given):
    with pytest.raises(SmilexError, match="one of max_steps, epochs or minutes"):
        Budget.choose(*given, per_epoch=10)


@pytest.mark.parametrize("given", [(0, None, None), (None, -1, None), (None, None, 0.0), (None, float("nan"), None)])
def test_settings_must_be_positive(given):
    with pytest.raises(SmilexError, match="must be positive"):
        Budget.choose(*given, per_epoch=10)


def test_schedule_rises_to_one_and_falls_to_zero():
    values = [learning_rate_factor(step / 1000) for step in range(1001)]
    peak = values.index(max(values))
    assert values[peak] == 1
    assert peak == 60
    assert values[0] == values[-1] == 0
    assert values[: peak + 1] == sorted(values[: peak + 1])
    assert values[peak:] == sorted(values[peak:], reverse=True)
    assert len(set(values)) > 990


def test_overtime_does_not_turn_the_rate_negative():
    assert learning_rate_factor(1.2) == 0
