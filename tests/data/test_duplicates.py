import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from smilex.data.duplicates import SeenHashes

HASHES = st.integers(0, 30) | st.integers(2**64 - 5, 2**64 - 1)


@given(st.lists(st.lists(HASHES, max_size=20), max_size=20))
def test_agrees_with_a_set(chunks):
    seen, reference = SeenHashes(), set()
    for chunk in chunks:
        expected = []
        for value in chunk:
            expected.append(value not in reference)
            reference.add(value)
        assert seen.add(np.array(chunk, dtype=np.uint64)).tolist() == expected


def test_few_arrays_and_eight_bytes_a_hash():
    seen = SeenHashes()
    rng = np.random.default_rng(0)
    added = sum(int(seen.add(rng.integers(0, 2**64, 100, dtype=np.uint64)).sum()) for _ in range(1000))
    assert sum(run.nbytes for run in seen._runs) == 8 * added
    assert len(seen._runs) <= np.log2(added)
