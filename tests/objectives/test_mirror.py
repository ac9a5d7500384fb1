import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem

from smilex.chem import canonicalize
from smilex.data.molecules import Molecule
from smilex.errors import SmilexError
from smilex.modeling import ExLMConfig
from smilex.objectives.mirror import SPAN, MirrorObjective, nt_xent
from smilex.tokenization import SmilesTokenizer

CONFIG = ExLMConfig.from_preset("tiny", vocab_size=len(SmilesTokenizer()))
TOKENIZER = SmilesTokenizer()
MASK = CONFIG.mask_token_id
SHORT = canonicalize("CC(=O)Oc1ccccc1C(=O)O")  # 21 characters
LONG = canonicalize("CC(=O)Nc1ccc(cc1)S(=O)(=O)N1CCN(CC1)c1ccccc1Cl")


def loop(vectors, molecules, temperature):
    """NT-Xent, one vector at a time, in float64."""
    n = len(vectors) // 2
    unit = [vector / math.sqrt(sum(x * x for x in vector)) for vector in vectors]
    total = 0.0
    for i in range(2 * n):
        twin = i + n if i < n else i - n
        scores = {
            j: sum(a * b for a, b in zip(unit[i], unit[j], strict=True)) / temperature
            for j in range(2 * n)
            if j == twin or molecules[j] != molecules[i]
        }
        total -= scores[twin] - math.log(sum(map(math.exp, scores.values())))
    return total / (2 * n)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 1000), st.sampled_from([0.04, 0.2, 1.0]))
def test_nt_xent_equals_a_plain_loop(molecules, seed, temperature):
    vectors = np.random.default_rng(seed).normal(size=(2 * len(molecules), 5))
    found = nt_xent(torch.from_numpy(vectors), torch.tensor(molecules * 2), temperature)
    assert found.dtype == torch.float64
    assert found.item() == pytest.approx(loop(vectors, molecules * 2, temperature), rel=1e-10, abs=1e-12)


def test_the_same_molecule_is_never_a_negative():
    torch.manual_seed(0)
    vectors = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    nt_xent(vectors, torch.tensor([0, 0, 0, 0, 0, 0]), 0.04).backward()
    assert not vectors.grad.any()  # nothing but twins: nothing to learn


def test_duplicates_are_found_by_their_canonical_smiles():
    objective = MirrorObjective(CONFIG, twins="random")
    batch = objective.collate(
        [Molecule.read(smiles) for smiles in ("CCO", "CCN", "CCO", LONG)], np.random.default_rng(0)
    )
    ids = batch["molecules"].tolist()
    assert ids[:4] == ids[4:]
    assert ids[0] == ids[2]
    assert len(set(ids)) == 3


def test_half_precision_is_computed_in_float32():
    torch.manual_seed(0)
    vectors = torch.randn(8, 16)
    molecules = torch.arange(4).repeat(2)
    found = nt_xent(vectors.bfloat16(), molecules, 0.04)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, nt_xent(vectors.bfloat16().float(), molecules, 0.04))


@pytest.mark.parametrize("twins", ["same", "random"])
def test_one_span_of_long_molecules_is_one_mask(twins):
    objective = MirrorObjective(CONFIG, twins=twins)
    tokens = Molecule.read(LONG).input_ids
    starts = set()
    for seed in range(200):
        batch = objective.collate([Molecule.read(LONG)], np.random.default_rng(seed))
        plain, twin = (row[row != CONFIG.pad_token_id].tolist() for row in batch["input_ids"])
        assert plain == tokens.tolist()
        assert twin.count(MASK) == 1
        start = twin.index(MASK)
        starts.add(start)
        if twins == "same":
            assert twin == [*plain[:start], MASK, *plain[start + SPAN :]]
        assert (twin[0], twin[-1]) == (CONFIG.cls_token_id, CONFIG.sep_token_id)
    if twins == "same":
        assert starts == set(range(1, len(tokens) - SPAN))


def test_short_molecules_are_left_whole():
    batch = MirrorObjective(CONFIG).collate([Molecule.read(SHORT)], np.random.default_rng(0))
    assert torch.equal(batch["input_ids"][0], batch["input_ids"][1])


@pytest.mark.parametrize(("smiles", "masks"), [("C" * 29, 0), ("C" * 30, 1), ("[Cl-]." * 5 + "[Cl-]", 1)])
def test_thirty_characters_are_long(smiles, masks):
    batch = MirrorObjective(CONFIG).collate([Molecule.read(smiles)], np.random.default_rng(0))
    assert int((batch["input_ids"] == MASK).sum()) == masks


def test_a_molecule_of_fewer_tokens_than_a_span_is_left_whole():
    few = Molecule("[Og@OH30+9]" + "[Og@OH30+9]" * 2, np.array([2, 20, 21, 3]))
    assert len(few.smiles) > 30
    batch = MirrorObjective(CONFIG).collate([few], np.random.default_rng(0))
    assert MASK not in batch["input_ids"]


def test_random_twins_are_the_same_molecule_written_anew():
    objective = MirrorObjective(CONFIG, twins="random")
    written = set()
    for seed in range(20):
        _, twin = objective.collate([Molecule.read(SHORT)], np.random.default_rng(seed))["input_ids"].tolist()
        written.add(TOKENIZER.decode(twin, skip_special_tokens=True))
    assert {Chem.CanonSmiles(text) for text in written} == {SHORT}
    assert len(written) > 5


def test_a_batch_follows_from_its_seed():
    objective = MirrorObjective(CONFIG, twins="random")
    batches = [objective.collate([Molecule.read(LONG)], np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert torch.equal(batches[0]["input_ids"], batches[1]["input_ids"])
    assert batches[0]["input_ids"].tolist() != batches[2]["input_ids"].tolist()


def test_batches_have_as_many_molecules_whatever_their_length():
    batches = MirrorObjective(CONFIG).batches(np.arange(10, 510), seed=0)
    assert sorted(len(batches[number]) for number in range(batches.per_epoch)) == [100, 200, 200]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_pooled_vectors_are_compared(pooling):
    objective = MirrorObjective(CONFIG, pooling=pooling)
    torch.manual_seed(0)
    model = objective.model_class(objective.config).eval()
    batch = objective.collate([Molecule.read(smiles) for smiles in (SHORT, LONG, "CCO")], np.random.default_rng(0))
    rows = [row[row != 0] for row in batch["input_ids"]]
    vectors = torch.cat([model(row[None]).pool(pooling) for row in rows]).double()
    expected = loop(vectors.detach().numpy(), [0, 1, 2] * 2, 0.04)
    assert objective.losses(model, batch)["loss"].item() == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_dropout_is_on_whatever_the_encoder_had():
    config = ExLMConfig.from_preset("tiny", hidden_dropout_prob=0.0)
    assert MirrorObjective(config).config.hidden_dropout_prob == 0.1
    assert config.hidden_dropout_prob == 0.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"twins": "other"}, "twins is same or random, not 'other'"),
        ({"pooling": "max"}, "pooling is mean or cls, not 'max'"),
        ({"molecules_per_batch": 1}, "molecules_per_batch must be at least 2, not 1"),
        ({"mask_ratio": 0.3}, "mask_ratio means nothing to mirror, which has twins, pooling"),
    ],
)
def test_settings_that_cannot_be_used(settings, message):
    with pytest.raises(SmilexError, match=message):
        MirrorObjective(CONFIG, **settings)
