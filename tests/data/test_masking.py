import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from smilex.data.masking import IGNORED, mask_tokens, num_masks
from smilex.data.molecules import Molecule

CLS, SEP, MASK = 2, 3, 4


@given(st.integers(3, 300), st.floats(0.01, 1.0), st.integers(0, 2**31))
def test_masks_are_ordinary_tokens_and_labels_restore_them(length, ratio, seed):
    rng = np.random.default_rng(seed)
    ids = np.concatenate([[CLS], rng.integers(5, 300, length - 2), [SEP]])
    masked, labels = mask_tokens(Molecule("", ids), ratio, MASK, rng)
    hidden = masked == MASK
    assert hidden.sum() == num_masks(length, ratio) >= 1
    assert not hidden[[0, -1]].any()
    np.testing.assert_array_equal(np.where(hidden, labels, masked), ids)
    assert (labels[~hidden] == IGNORED).all()


@given(st.integers(3, 300), st.floats(0.0, 1.0))
def test_number_of_masks_is_the_rounded_share(length, ratio):
    assert num_masks(length, ratio) == min(max(1, round(ratio * (length - 2))), length - 2)


def test_all_tokens_can_be_masked():
    masked, _ = mask_tokens(Molecule("", np.array([CLS, 10, 11, 12, SEP])), 1.0, MASK, np.random.default_rng(0))
    assert masked.tolist() == [CLS, MASK, MASK, MASK, SEP]


def test_every_place_is_masked_equally_often():
    ids = np.array([CLS, *range(10, 20), SEP])
    rng = np.random.default_rng(0)
    counts = sum((mask_tokens(Molecule("", ids), 0.2, MASK, rng)[0] == MASK).astype(int) for _ in range(5000))
    assert counts[[0, -1]].tolist() == [0, 0]
    assert abs(counts[1:-1] / 5000 - 0.2).max() < 0.03
