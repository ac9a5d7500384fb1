import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smilex import SmilesTokenizer
from smilex.chem import canonicalize
from smilex.data.random_smiles import RandomSmiles

TOKENIZER = SmilesTokenizer()
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
MOLECULES = [
    ASPIRIN,
    "C[C@H](N)C(=O)O",
    "F/C=C/F",
    "[13CH4].[Na+].[Cl-]",
    "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
    "C",
    "[Og]CC[UH2]C",
    r"C/C(=N\O)c1ccc2[nH]ccc2c1",
]


def encode(smiles):
    return TOKENIZER(canonicalize(smiles))["input_ids"]


def text(ids):
    return TOKENIZER.decode(ids, skip_special_tokens=True)


@pytest.fixture(scope="module")
def writer():
    return RandomSmiles(max_length=512)


@pytest.mark.parametrize("smiles", MOLECULES)
def test_whatever_is_written_is_the_molecule(writer, smiles):
    ids = encode(smiles)
    written = [*writer.several(ids, 20), *(writer.draw(ids, (0, number)) for number in range(20))]
    assert {canonicalize(text(writing)) for writing in written} == {canonicalize(smiles)}
    assert all(writing == TOKENIZER(text(writing))["input_ids"] for writing in written)


@settings(deadline=None, max_examples=30)
@given(seed=st.lists(st.integers(0, 2**40), min_size=1, max_size=3))
def test_a_draw_follows_from_its_seed(seed):
    ids = encode(ASPIRIN)
    assert RandomSmiles(512).draw(ids, seed) == RandomSmiles(512).draw(ids, seed)


def test_draws_of_many_seeds_are_many(writer):
    ids = encode(ASPIRIN)
    seeds = [(seed, epoch, row) for seed in range(3) for epoch in range(3) for row in range(3)]
    assert len({text(writer.draw(ids, seed)) for seed in seeds}) > 20


@pytest.mark.parametrize("count", [1, 2, 8, 50])
def test_several_are_different_and_the_given_one_is_first(writer, count):
    ids = encode(ASPIRIN)
    found = [text(writing) for writing in writer.several(ids, count)]
    assert found[0] == ASPIRIN
    assert len(set(found)) == len(found) == count
    assert RandomSmiles(512).several(ids, count) == writer.several(ids, count)


@pytest.mark.parametrize(
    ("smiles", "ways"), [("C", {"C"}), ("CO", {"CO", "OC"}), ("CCO", {"CCO", "OCC", "C(C)O", "C(O)C"})]
)
def test_a_small_molecule_has_all_the_ways_there_are(writer, smiles, ways):
    found = [text(writing) for writing in writer.several(encode(smiles), 8)]
    assert set(found) == ways
    assert len(found) == len(ways)


def test_what_is_too_long_is_never_written():
    ids = encode(ASPIRIN)
    writer = RandomSmiles(max_length=len(ids))
    draws = [writer.draw(ids, (number,)) for number in range(50)]
    assert max(map(len, [*draws, *writer.several(ids, 30)])) == len(ids)
    longer = [RandomSmiles(512).draw(ids, (number,)) for number in range(50)]
    assert any(len(writing) > len(ids) for writing in longer)
    for draw, long in zip(draws, longer, strict=True):
        assert draw == (ids if len(long) > len(ids) else long)


def test_what_has_an_unknown_token_is_never_written(writer, monkeypatch):
    ids = encode("CCO")
    assert TOKENIZER.unk_token_id in TOKENIZER("CéC")["input_ids"]
    monkeypatch.setattr("smilex.data.random_smiles.enumerate_smiles", lambda _text, n, _seed: ["CéC"] * n)
    assert writer.draw(ids, (0,)) == ids
    assert writer.several(ids, 5) == [ids]


@pytest.mark.parametrize("smiles", ["", "C1CC", "c1cccc1"])
def test_what_cannot_be_read_stays_as_it_is(writer, smiles):
    ids = TOKENIZER(smiles)["input_ids"]
    assert writer.draw(ids, (0,)) == ids
    assert writer.several(ids, 5) == [ids]
