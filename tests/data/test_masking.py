import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smilex.chem import chemical_groups, parse
from smilex.data.masking import IGNORED, MASKINGS, group_tokens, mask_tokens, num_masks
from smilex.data.molecules import Molecule
from smilex.tokenization import SmilesTokenizer, align_tokens

CLS, SEP, MASK = 2, 3, 4
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
SMILES = [
    ASPIRIN,
    "C",
    "[Na+].[Cl-]",
    "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
    "CC(=O)Nc1ccc(cc1)S(=O)(=O)N1CCN(CC1)c1ccccc1Cl",
    "[2H]C([2H])([2H])O",
    "C%10CCCC%10",
    "[13CH3][13C](=O)[18OH]",
    "CCCCCCCCCCCCCCCCCC",
]


def hidden(smiles, mask_ratio, seed, masking):
    """Places of the masks among the tokens of a SMILES."""
    masked, _ = mask_tokens(Molecule.read(smiles), mask_ratio, MASK, np.random.default_rng(seed), masking)
    return set(np.flatnonzero(masked == MASK) - 1)


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


# Every way to choose


@pytest.mark.parametrize("masking", MASKINGS)
@given(st.sampled_from(SMILES), st.floats(0.01, 1.0), st.integers(0, 2**31))
def test_the_number_of_masks_is_that_of_the_length_whatever_the_choice(masking, smiles, ratio, seed):
    molecule = Molecule.read(smiles)
    masked, labels = mask_tokens(molecule, ratio, MASK, np.random.default_rng(seed), masking)
    chosen = masked == MASK
    assert chosen.sum() == num_masks(len(molecule.input_ids), ratio)
    assert not chosen[[0, -1]].any()
    np.testing.assert_array_equal(np.where(chosen, labels, masked), molecule.input_ids)
    assert (labels[~chosen] == IGNORED).all()


@pytest.mark.parametrize("masking", MASKINGS)
def test_a_choice_follows_from_its_seed_and_varies(masking):
    assert hidden(ASPIRIN, 0.3, 1, masking) == hidden(ASPIRIN, 0.3, 1, masking)
    assert len({frozenset(hidden(ASPIRIN, 0.3, seed, masking)) for seed in range(50)}) > 3


# Spans


def runs(places):
    """Lengths of runs of neighbours."""
    ordered = sorted(places)
    cuts = [index for index in range(1, len(ordered)) if ordered[index] != ordered[index - 1] + 1]
    return np.diff([0, *cuts, len(ordered)])


def test_spans_hide_neighbours():
    long = "C" * 200
    lengths = {
        masking: np.mean([runs(hidden(long, 0.15, seed, masking)).mean() for seed in range(100)])
        for masking in ("random", "span")
    }
    assert lengths["random"] < 1.4
    assert lengths["span"] > 3


def test_every_place_is_in_a_span_equally_often_but_at_the_ends():
    rng = np.random.default_rng(0)
    molecule = Molecule.read("C" * 60)
    counts = sum((mask_tokens(molecule, 0.3, MASK, rng, "span")[0] == MASK).astype(int)[1:-1] for _ in range(3000))
    middle = counts[10:-10] / 3000
    assert abs(middle - 0.3).max() < 0.06
    assert abs(counts[:5].mean() - counts[-5:].mean()) / 3000 < 0.02


# Groups


@pytest.mark.parametrize(
    ("smiles", "groups"),
    [
        ("CCCC", []),
        ("CCO", [{2}]),
        ("CC(=O)O", [{1, 2, 3}]),
        ("CC(=O)Oc1ccccc1", [{1, 2, 3}, {4, 5, 6, 7, 8, 9}]),
        ("CC#N", [{1, 2}]),
        ("C=CC", [{0, 1}]),
        ("c1ccc2ccccc2c1", [{0, 1, 2, 3, 8, 9}, {3, 4, 5, 6, 7, 8}]),
        ("c1ccncc1", [{0, 1, 2, 3, 4, 5}]),
        ("CS(=O)(=O)N", [{1, 2, 3, 4}]),
        ("COCOC", [{1, 2, 3}]),
        ("CC1CO1", [{1, 2, 3}, {1, 2, 3}]),
        ("CN.CO", [{1}, {3}]),
    ],
)
def test_known_functional_groups_and_rings(smiles, groups):
    assert [set(group) for group in chemical_groups(parse(smiles))] == groups


@pytest.mark.parametrize("smiles", SMILES)
def test_tokens_of_a_group_write_its_atoms_and_the_bonds_between_them(smiles):
    owners = align_tokens(smiles)
    groups = chemical_groups(parse(smiles))
    assert len(group_tokens(smiles)) == len(groups)
    for places, group in zip(group_tokens(smiles), groups, strict=True):
        assert {owners[place] for place in places if isinstance(owners[place], int)} == group
        for place, owner in enumerate(owners):
            atoms = {owner} if isinstance(owner, int) else set(owner or [])
            assert (place in places) == (bool(atoms) and atoms <= group)


def test_a_bracket_atom_of_several_tokens_and_a_ring_of_two_digits_are_whole():
    tokens = SmilesTokenizer().tokenize("[13CH3]C%10OC%10")
    shown = [[tokens[place] for place in places] for places in group_tokens("[13CH3]C%10OC%10")]
    assert shown == [["C", "%10", "O", "C", "%10"]] * 2
    assert [len(places) for places in group_tokens("C[18OH]")] == [6]


def test_the_share_is_filled_with_whole_groups_where_they_fit():
    # An amide of 4 tokens, chlorine of 1 and a ring of 8: a share of 5 of the 20 holds the first two whole.
    smiles = "CCCCCNC(=O)CCCCCCCCl"
    groups = [set(group) for group in group_tokens(smiles)]
    assert sorted(map(len, groups)) == [1, 4]
    assert hidden(smiles, 0.25, 0, "group") == set().union(*groups)


def test_what_is_left_of_the_share_is_a_run_of_a_group_that_does_not_fit():
    smiles = "CCCCCCCCC" + "c1ccccc1"
    (ring,) = group_tokens(smiles)
    for seed in range(20):
        chosen = hidden(smiles, 0.2, seed, "group")
        assert chosen <= set(ring)
        places = sorted(ring.index(place) for place in chosen)
        assert len(places) == 3
        assert any(sorted((start + step) % len(ring) for step in range(3)) == places for start in range(len(ring)))


def test_a_molecule_without_groups_is_masked_at_random():
    counts = np.zeros(18)
    for seed in range(400):
        counts[list(hidden("C" * 18, 0.3, seed, "group"))] += 1
    assert counts.min() > 60


def test_a_string_that_cannot_be_read_is_masked_at_random():
    molecule = Molecule.read("C1CCCCC")
    masked, _ = mask_tokens(molecule, 0.5, MASK, np.random.default_rng(0), "group")
    assert (masked == MASK).sum() == 4
