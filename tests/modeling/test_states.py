import torch
from hypothesis import given
from hypothesis import strategies as st

from smilex.modeling.states import compact, expand_states

PAD = 0


@st.composite
def batches(draw):
    length = draw(st.integers(1, 12))
    rows = draw(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=length), min_size=1, max_size=4))
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def expand_by_hand(row, expand, k):
    written = []
    for position, (token, copies) in enumerate(zip(row, expand, strict=True)):
        if token == PAD:
            continue
        written += [(token, position, state) for state in (range(1, k + 1) if copies else [0])]
    return written


@given(batches(), st.integers(1, 5))
def test_expansion_equals_writing_it_by_hand(input_ids, k):
    expand = input_ids <= 4
    expanded = expand_states(input_ids, expand, k, PAD)
    for b, row in enumerate(input_ids.tolist()):
        written = expand_by_hand(row, expand[b].tolist(), k)
        n = len(written)
        columns = (expanded.input_ids[b], expanded.token_position[b], expanded.state_index[b])
        assert list(zip(*(column[:n].tolist() for column in columns), strict=True)) == written
        assert expanded.attention_mask[b].tolist() == [True] * n + [False] * (expanded.input_ids.shape[1] - n)
        assert all((column[n:] == 0).all() for column in columns)


def test_example_of_the_method():
    ids = torch.tensor([[2, 7, 4, 9, 3]])
    expanded = expand_states(ids, torch.isin(ids, torch.tensor([2, 3, 4])), 2, PAD)
    assert expanded.input_ids.tolist() == [[2, 2, 7, 4, 4, 9, 3, 3]]
    assert expanded.token_position.tolist() == [[0, 0, 1, 2, 2, 3, 4, 4]]
    assert expanded.state_index.tolist() == [[1, 2, 0, 1, 2, 0, 1, 2]]


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=5))
def test_compact_lists_marked_positions_in_order(rows):
    mask = torch.tensor(rows)
    positions, counts = compact(mask)
    for row, found, count in zip(rows, positions, counts, strict=True):
        assert found[:count].tolist() == [i for i, marked in enumerate(row) if marked]
