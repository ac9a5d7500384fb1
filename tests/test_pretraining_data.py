import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from smilex.data.corpus import load_corpus
from smilex.modeling import ExLMConfig
from smilex.objectives import get_objective
from smilex.pretraining_data import PretrainingData, RowsWithout


@given(st.integers(1, 60).flatmap(lambda size: st.tuples(st.just(size), st.sets(st.integers(0, size - 1)))))
def test_rows_without_some_are_the_others(size_and_rows):
    size, left_out = size_and_rows
    rows = RowsWithout(size, np.array(sorted(left_out), dtype=np.int64))
    expected = [row for row in range(size) if row not in left_out]
    assert len(rows) == len(expected)
    assert rows[np.arange(len(rows))].tolist() == expected


def test_batches_are_of_the_lengths_that_the_corpus_has_at_their_rows(tmp_path):
    smiles = ["C" * length for length in range(1, 41)]
    corpus = load_corpus(smiles, cache_dir=tmp_path, progress=False)
    data = PretrainingData(corpus, get_objective("mlm")(ExLMConfig.from_preset("tiny"), tokens_per_batch=60), seed=0)
    for step in range(data.batches.per_epoch):
        rows = data.rows[data.batches[step]]
        lengths = [len(corpus.dataset[int(row)]["input_ids"]) for row in rows]
        batch = data[step]["input_ids"]
        assert (batch != 0).sum(1).tolist() == lengths
        assert batch.shape[1] == max(lengths)
        assert batch.numel() <= 60
