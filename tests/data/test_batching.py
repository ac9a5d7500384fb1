import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smilex.data.batching import LengthBatches, pad
from smilex.errors import SmilexError

lengths = st.lists(st.integers(1, 60), min_size=1, max_size=80).map(np.array)


@given(lengths, st.integers(1, 300), st.integers(0, 5))
def test_an_epoch_covers_each_molecule_once_within_the_budget(lengths, budget, seed):
    batches = LengthBatches(lengths, budget, seed)
    for epoch in range(2):
        rows = [batches[epoch * batches.per_epoch + index] for index in range(batches.per_epoch)]
        assert sorted(np.concatenate(rows).tolist()) == list(range(len(lengths)))
        for batch in rows:
            assert len(batch) == 1 or len(batch) * lengths[batch].max() <= budget


@given(lengths, st.integers(1, 300), st.integers(0, 200))
def test_a_batch_depends_on_seed_and_number_alone(lengths, budget, number):
    used, fresh = LengthBatches(lengths, budget, 7), LengthBatches(lengths, budget, 7)
    for earlier in range(3):
        used[earlier]
    np.testing.assert_array_equal(used[number], fresh[number])


def test_batches_are_as_large_as_the_budget_allows():
    batches = LengthBatches(np.full(1000, 40), 4000)
    assert batches.per_epoch == 10
    assert all(len(batches[index]) == 100 for index in range(10))


@given(lengths, st.integers(1, 100), st.integers(0, 5))
def test_batches_of_so_many_molecules_cover_each_once_and_are_of_like_lengths(lengths, size, seed):
    batches = LengthBatches(lengths, seed=seed, molecules_per_batch=size)
    rows = [batches[index] for index in range(batches.per_epoch)]
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(lengths)))
    assert sorted(map(len, rows))[1:] == [size] * (len(rows) - 1)
    spans = sum(np.ptp(lengths[row]) for row in rows)
    assert spans <= np.ptp(lengths)


def test_epochs_and_seeds_give_other_batches():
    a, b = LengthBatches(np.full(100, 10), 100, 0), LengthBatches(np.full(100, 10), 100, 1)
    assert a[0].tolist() != b[0].tolist()
    assert a[0].tolist() != a[10].tolist()


def test_nothing_to_batch():
    with pytest.raises(SmilexError, match="no molecule"):
        LengthBatches(np.array([], dtype=int), 100)
    with pytest.raises(SmilexError, match="must be positive"):
        LengthBatches(np.array([5]), 0)
    with pytest.raises(SmilexError, match="must be positive"):
        LengthBatches(np.array([5]), molecules_per_batch=0)


def test_padding():
    assert pad([np.array([1]), np.array([2, 3])], -100).tolist() == [[1, -100], [2, 3]]
