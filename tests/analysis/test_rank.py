import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

from smilex.analysis import effective_rank
from smilex.errors import SmilexError


def by_definition(matrix, threshold):
    squared = np.linalg.svd(np.asarray(matrix, dtype=np.float64), compute_uv=False) ** 2
    held = 0.0
    for count, value in enumerate(squared, start=1):
        held += value
        if held >= threshold * squared.sum() * (1 - 1e-10):
            return count
    raise AssertionError


def with_singular_values(values, rows, columns, seed):
    """A matrix of rows × columns with these singular values and random singular vectors."""
    left = ortho_group.rvs(rows, random_state=seed)[:, : len(values)]
    right = ortho_group.rvs(columns, random_state=seed + 1)[:, : len(values)]
    return left @ np.diag(values) @ right.T


@pytest.mark.parametrize(
    ("squared", "threshold", "rank"),
    [
        ([1, 1, 1, 1], 0.9, 4),
        ([1, 1, 1, 1], 0.75, 3),  # exactly the threshold
        ([1, 1, 1, 1], 0.5, 2),
        ([90, 5, 5], 0.9, 1),
        ([89, 6, 5], 0.9, 2),
        ([89, 6, 5], 0.96, 3),
        ([89, 6, 5], 1.0, 3),
        ([100, 0, 0], 1.0, 1),
        ([7], 1e-9, 1),
    ],
)
@pytest.mark.parametrize("shape", [(30, 6), (6, 30), (6, 6)])
def test_rank_of_a_matrix_with_known_singular_values(squared, threshold, rank, shape):
    matrix = with_singular_values(np.sqrt(squared), *shape, seed=len(squared))
    assert effective_rank(matrix, threshold) == rank


@pytest.mark.parametrize("dimension", [2, 10, 50])
def test_rank_of_equal_directions(dimension):
    assert effective_rank(np.eye(dimension)) == int(np.ceil(0.9 * dimension))


def test_default_threshold_is_nine_tenths():
    matrix = np.diag(np.sqrt([8.9, 0.6, 0.5]))
    assert effective_rank(matrix) == effective_rank(matrix, 0.9) == 2
    assert effective_rank(matrix, 0.89) == 1


def test_vectors_are_not_centred():
    assert effective_rank(np.full((20, 4), 3.0) + np.eye(20, 4) * 0.01, 0.99) == 1


def test_zero_vectors_have_rank_0():
    assert effective_rank(np.zeros((4, 3))) == 0


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_scale_neither_overflows_nor_vanishes(scale):
    matrix = np.random.default_rng(0).normal(size=(40, 8))
    assert effective_rank(matrix * scale) == by_definition(matrix, 0.9)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
def test_kinds_of_numbers(dtype):
    matrix = (np.random.default_rng(1).normal(size=(50, 7)) * 10).astype(dtype)
    assert effective_rank(matrix) == by_definition(matrix, 0.9)


def test_many_vectors_go_through_in_blocks(monkeypatch):
    matrix = np.random.default_rng(2).normal(size=(500, 12)) * np.arange(1, 13)
    whole = effective_rank(matrix)
    monkeypatch.setattr("smilex.analysis.arrays.BLOCK_VALUES", 100)
    assert effective_rank(matrix) == whole == by_definition(matrix, 0.9)


@given(
    rows=st.integers(1, 20), columns=st.integers(1, 12), threshold=st.floats(0.05, 0.999), seed=st.integers(0, 1 << 20)
)
@settings(max_examples=60, deadline=None)
def test_rank_is_that_of_the_definition_and_invariant(rows, columns, threshold, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(rows, columns)) * rng.exponential(size=columns)
    rank = by_definition(matrix, threshold)
    rotation = np.linalg.qr(rng.normal(size=(columns, columns)))[0]
    assert effective_rank(matrix, threshold) == rank
    assert effective_rank(matrix @ rotation, threshold) == rank
    assert effective_rank(rng.permutation(matrix) * -3.7, threshold) == rank
    assert effective_rank(np.repeat(matrix, 2, axis=0), threshold) == rank


@pytest.mark.parametrize("threshold", [0, -0.1, 1.1, float("nan")])
def test_a_threshold_out_of_range_is_an_error(threshold):
    with pytest.raises(SmilexError, match="threshold is a share above 0 and at most 1"):
        effective_rank(np.eye(3), threshold)


@pytest.mark.parametrize(
    "vectors", [np.zeros((0, 3)), np.zeros((3, 0)), np.zeros(3), np.zeros((2, 2, 2)), [["a", "b"]], 1j * np.eye(2)]
)
def test_what_is_no_matrix_is_an_error(vectors):
    with pytest.raises(SmilexError, match="vectors must be numbers of shape"):
        effective_rank(vectors)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_of_invalid_molecules_are_an_error_that_names_the_first(value):
    vectors = np.eye(4)
    vectors[[1, 3], 0] = value
    with pytest.raises(SmilexError, match="NaN or infinity in 2 of 4 rows, first in row 1"):
        effective_rank(vectors)
