import math
from itertools import combinations, pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from smilex import SmilesTokenizer, fill_mask
from smilex.errors import SmilexError
from smilex.filling import most_probable_fillings
from smilex.modeling import ExLMConfig, ExLMForMaskedLM


def enumerate_fillings(log_emission, log_transition, num_masks):
    """Probability of every filling: the sum over all paths, given that a path has num_masks + 2 states."""
    states, vocabulary = log_emission.shape
    paths = [(0, *middle, states - 1) for middle in combinations(range(1, states - 1), num_masks)]
    weights = [math.exp(sum(log_transition[u, v].item() for u, v in pairwise(p))) for p in paths]
    probs = log_emission.exp()
    return {
        tokens: sum(
            weight * math.prod(probs[u, y].item() for u, y in zip(path[1:-1], tokens, strict=True))
            for path, weight in zip(paths, weights, strict=True)
        )
        / sum(weights)
        for tokens in product(range(vocabulary), repeat=num_masks)
    }


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(0, 2))
def test_beam_search_is_exact_when_wide_enough(seed, num_masks, extra_states):
    generator = torch.Generator().manual_seed(seed)
    states, vocabulary = num_masks + 2 + extra_states, 4
    log_emission = torch.randn(states, vocabulary, generator=generator, dtype=torch.double).log_softmax(-1)
    allowed = torch.ones(states, states).triu(1).bool()
    score = torch.randn(states, states, generator=generator, dtype=torch.double).masked_fill(~allowed, -1e9)
    log_transition = score.log_softmax(-1).masked_fill(~allowed, -torch.inf)
    expected = enumerate_fillings(log_emission, log_transition, num_masks)
    found = most_probable_fillings(log_emission, log_transition, num_masks, beam_width=vocabulary**num_masks)
    assert len(found) == len(expected)
    assert sum(math.exp(log_p) for _, log_p in found) == pytest.approx(1, abs=1e-9)
    for tokens, log_p in found:
        assert math.exp(log_p) == pytest.approx(expected[tuple(tokens)], abs=1e-9)
    assert [log_p for _, log_p in found] == sorted((log_p for _, log_p in found), reverse=True)


@pytest.fixture(scope="module", params=[4, 1])
def encoder(request, tmp_path_factory):
    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("encoder")
    config = ExLMConfig.from_preset("tiny", vocab_size=len(SmilesTokenizer()), num_states=request.param)
    ExLMForMaskedLM(config).save_pretrained(directory)
    return directory


@pytest.mark.parametrize("smiles", ["CC(=O)Oc1ccccc1[MASK]", "[MASK]", "C[MASK]C[MASK]O", "[MASK][MASK]"])
def test_every_completion_is_a_molecule_as_it_stands(encoder, smiles):
    fillings = fill_mask(smiles, encoder, top_k=7)
    assert 0 < len(fillings) <= 7
    for filling in fillings:
        assert Chem.MolFromSmiles(filling.smiles) is not None
        assert 0 < filling.probability < 1
        assert "[MASK]" not in filling.smiles
    assert len({filling.smiles for filling in fillings}) == len(fillings)
    assert [f.probability for f in fillings] == sorted((f.probability for f in fillings), reverse=True)


def test_what_is_not_masked_stays_as_it_is(encoder):
    assert all(f.smiles.startswith("OCC(") and f.smiles.endswith(")C") for f in fill_mask("OCC([MASK])C", encoder))


@pytest.mark.parametrize(
    ("smiles", "message"),
    [
        ("CCO", r"no \[MASK\]"),
        ("", r"no \[MASK\]"),
        ("C[MASK]ü", "no SMILES token"),
        ("C [MASK]", "no SMILES token"),
        ("[MASK]" + "C" * 600, "limit of this model is 512"),
    ],
)
def test_strings_that_cannot_be_completed(encoder, smiles, message):
    with pytest.raises(SmilexError, match=message):
        fill_mask(smiles, encoder)


def test_settings(encoder):
    with pytest.raises(SmilexError, match="top_k"):
        fill_mask("C[MASK]", encoder, top_k=0)
    with pytest.raises(SmilexError, match="one SMILES string"):
        fill_mask(["C[MASK]"], encoder)
