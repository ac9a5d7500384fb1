import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smilex.data import batching
from smilex.data.batching import LengthBatches, pad
from smilex.errors import SmilexError

lengths = st.lists(st.integers(1, 60), min_size=1, max_size=80).map(np.array)


def epoch_of(batches, number=0):
    """All batches of an epoch."""
    return [batches[number * batches.per_epoch + index] for index in range(batches.per_epoch)]


def check_two_epochs(batches, lengths, budget):
    """Each covers each molecule once, within the budget."""
    for number in range(2):
        rows = epoch_of(batches, number)
        assert sorted(np.concatenate(rows).tolist()) == list(range(len(lengths)))
        assert all(len(batch) == 1 or len(batch) * lengths[batch].max() <= budget for batch in rows)


@given(lengths, st.integers(1, 300), st.integers(0, 5))
def test_an_epoch_covers_each_molecule_once_within_the_budget(lengths, budget, seed):
    check_two_epochs(LengthBatches(lengths, budget, seed), lengths, budget)


@given(lengths, st.integers(1, 300), st.integers(0, 200))
def test_a_batch_depends_on_seed_and_number_alone(lengths, budget, number):
    used, fresh = LengthBatches(lengths, budget, 7), LengthBatches(lengths, budget, 7)
    for earlier in range(3):
        used[earlier]
    np.testing.assert_array_equal(used[number], fresh[number])


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(batching, "RUN", 4)
    monkeypatch.setattr(batching, "RUNS_PER_BLOCK", 3)


@pytest.mark.usefixtures("small_blocks")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths, st.integers(1, 300), st.integers(0, 5))
def test_blocks_cover_each_molecule_once_an_epoch_within_the_budget(lengths, budget, seed):
    batches = LengthBatches(lengths, budget, seed)
    check_two_epochs(batches, lengths, budget)
    number = 2 * batches.per_epoch // 3
    np.testing.assert_array_equal(LengthBatches(lengths, budget, seed)[number], batches[number])


@pytest.mark.usefixtures("small_blocks")
def test_a_block_is_read_to_its_end_before_the_next_one_and_blocks_change_places():
    batches = LengthBatches(np.full(120, 10), 40, 0)  # 3 batches a block

    def blocks(epoch):
        rows = epoch_of(batches, epoch)
        return [frozenset(np.concatenate(rows[start : start + 3]).tolist()) for start in range(0, 30, 3)]

    first, second = blocks(0), blocks(1)
    assert all(len(block) == 12 for block in first)
    assert set(first) == set(second)
    assert first != second
    # Runs of four neighbours, from all over the corpus.
    assert all({row // 4 * 4 + i for row in block for i in range(4)} == block for block in first)
    assert any(max(block) - min(block) > 60 for block in first)


def test_what_molecules_cost_is_counted_not_their_lengths():
    batches = LengthBatches(np.arange(1, 9), 40, 0, encoded=lambda lengths: 10 * lengths)
    rows = [sorted(batch.tolist()) for batch in epoch_of(batches)]
    assert sorted(rows) == [[0, 1], [2], [3], [4], [5], [6], [7]]


def test_batches_are_as_large_as_the_budget_allows():
    batches = LengthBatches(np.full(1000, 40), 4000)
    assert batches.per_epoch == 10
    assert all(len(batches[index]) == 100 for index in range(10))


@given(lengths, st.integers(1, 100), st.integers(0, 5))
def test_batches_of_so_many_molecules_cover_each_once_and_are_of_like_lengths(lengths, size, seed):
    batches = LengthBatches(lengths, seed=seed, molecules_per_batch=size)
    rows = epoch_of(batches)
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
