import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smilex.inference import run_rows, to_default_device

CPU = torch.device("cpu")

token_rows = st.lists(st.none() | st.lists(st.integers(1, 50), min_size=1, max_size=30), max_size=25)


def sums(ids):
    """What a row says without its padding: the sum of its ids and how many there are."""
    return torch.stack([ids.sum(1), (ids != 0).sum(1)], dim=1).double()


@given(token_rows, st.sampled_from([1, 7, 40, 8192]))
def test_each_result_stands_in_its_row(rows, budget):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("smilex.inference.TOKENS_PER_BATCH", budget)
        result = run_rows(sums, rows, 2, pad_id=0, device=CPU)
    assert result.shape == (len(rows), 2)
    assert result.dtype == np.float32
    for row, values in zip(rows, result, strict=True):
        if row is None:
            assert np.isnan(values).all()
        else:
            assert values.tolist() == [sum(row), len(row)]


@given(token_rows)
def test_every_batch_keeps_to_the_budget_of_tokens(rows):
    sizes = []

    def record(ids):
        sizes.append(ids.shape)
        return sums(ids)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("smilex.inference.TOKENS_PER_BATCH", 64)
        run_rows(record, rows, 2, pad_id=0, device=CPU)
    assert sum(count for count, _ in sizes) == sum(row is not None for row in rows)
    assert all(count == 1 or count * length <= 64 for count, length in sizes)


def test_no_gradients_are_kept():
    weight = torch.ones(1, requires_grad=True)
    seen = []

    def scaled(ids):
        result = ids.float().sum(1, keepdim=True) * weight
        seen.append(result.requires_grad)
        return result

    run_rows(scaled, [[1, 2]], 1, pad_id=0, device=CPU)
    assert seen == [False]


def test_a_model_moves_to_the_gpu_where_there_is_one():
    model = torch.nn.Linear(2, 2)
    assert to_default_device(model) is model
    assert model.weight.is_cuda == torch.cuda.is_available()
