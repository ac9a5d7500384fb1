"""The batches of a pretraining run: what objectives are given, with targets, and in random SMILES."""

from pathlib import Path

import numpy as np
import pytest
import torch
from rdkit import RDConfig

from smilex.chem import canonicalize
from smilex.data.corpus import load_corpus
from smilex.data.descriptor_targets import load_descriptor_targets
from smilex.data.masking import group_tokens
from smilex.modeling import ExLMConfig
from smilex.objectives import get_objective
from smilex.pretraining_data import PretrainingData
from smilex.tokenization import SmilesTokenizer

CONFIG = ExLMConfig.from_preset("tiny", vocab_size=len(SmilesTokenizer()), max_position_embeddings=100)
MOLECULES = [
    line.split()[0] for line in (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()[:300]
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SMILEX_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def opened(objective, **settings):
    method = get_objective(objective)(CONFIG, tokens_per_batch=1000, **settings)
    data = PretrainingData(load_corpus(MOLECULES, max_length=100, progress=False), method, 0)
    data.add_targets(progress=False)
    return data


def texts(batch):
    """The SMILES that a batch was made of."""
    ids = torch.where(batch["labels"] == -100, batch["input_ids"], batch["labels"]) if "labels" in batch else None
    return SmilesTokenizer().batch_decode(batch["input_ids"] if ids is None else ids, skip_special_tokens=True)


@pytest.mark.parametrize("objective", ["exlm", "mlm", "mae_lm", "descriptors"])
def test_molecules_are_read_in_another_random_smiles_each_time_they_are_trained_on(objective):
    canonical, data = opened(objective), opened(objective, random_smiles=True)
    steps = range(data.batches.per_epoch)
    for step in steps:
        assert [canonicalize(text) for text in texts(data[step])] == texts(canonical[step])
    written = [text for step in steps for text in texts(data[step])]
    assert sum(text != canonicalize(text) for text in written) > 0.8 * len(written)
    assert [texts(opened(objective, random_smiles=True)[step]) for step in steps] == [
        texts(data[step]) for step in steps
    ]
    again = [text for step in steps for text in texts(data[data.batches.per_epoch + step])]
    assert len(set(written) & set(again)) < 0.5 * len(written)
    for first, second in zip(data.held_out(), canonical.held_out(), strict=True):
        assert first.keys() == second.keys()
        for name in first:
            torch.testing.assert_close(first[name], second[name], rtol=0, atol=0, equal_nan=True)


def test_groups_are_masked_where_a_random_smiles_writes_them():
    data = opened("mlm", random_smiles=True, masking="group", mask_ratio=0.3)
    whole = 0
    for step in range(data.batches.per_epoch):
        batch = data[step]
        for text, labels in zip(texts(batch), batch["labels"], strict=True):
            masked = set((torch.nonzero(labels != -100).flatten() - 1).tolist())
            groups = [set(group) for group in group_tokens(text)]
            fitting = [group for group in groups if len(group) <= len(masked)]
            # Of the groups that fit into the share by themselves, one at least is hidden as a whole.
            assert not fitting or any(group <= masked for group in fitting), text
            whole += bool(fitting)
    assert whole > 100


@pytest.mark.parametrize("random_smiles", [False, True])
def test_targets_are_those_of_the_molecules_of_a_batch(random_smiles):
    data = opened("descriptors", random_smiles=random_smiles)
    corpus = load_corpus(MOLECULES, max_length=100, progress=False)
    targets = load_descriptor_targets(corpus, progress=False).with_format("numpy")["targets"][:]
    known = dict(zip(corpus.dataset["smiles"][:], targets, strict=True))
    seen = 0
    for batch in [*(data[step] for step in range(data.batches.per_epoch)), *data.held_out()]:
        for text, row in zip(texts(batch), batch["targets"].numpy(), strict=True):
            np.testing.assert_array_equal(row, known[canonicalize(text)])
            seen += 1
    assert seen == len(known)
