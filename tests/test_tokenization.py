"""The vocabulary is closed and complete: no unknown token, exact round trip, symbols in their order."""

import csv
import gzip
import hashlib
import itertools
import pickle
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem, RDConfig

from smilex import chem
from smilex.errors import InvalidSmilesError
from smilex.tokenization import SPECIAL_TOKENS, VOCABULARY, SmilesTokenizer, align_tokens

SHARED = Path(__file__).parents[1] / "../shared/data"
NCI = [line.split()[0] for line in (Path(RDConfig.RDDataDir) / "NCI/first_5K.smi").read_text().splitlines()]
TABLE = Chem.GetPeriodicTable()
ELEMENTS = [TABLE.GetElementSymbol(number) for number in range(1, 119)]
AROMATIC = ["b", "c", "n", "o", "p", "s", "se", "te", "as", "si"]
CHIRALITY = ["@", "@@"] + [
    f"@{kind}{number}"
    for kind, last in [("TH", 2), ("AL", 2), ("SP", 3), ("TB", 20), ("OH", 30)]
    for number in ["", *range(1, last + 1)]
]
CHARGES = ["", "+", "-", "++", "--", *(f"{sign}{number}" for sign in "+-" for number in range(2, 16))]

tok = SmilesTokenizer()


def moleculenet(limit):
    if not SHARED.exists():
        pytest.skip("MoleculeNet files are not there")
    for path in sorted(SHARED.glob("moleculenet/*.csv.gz")):
        with gzip.open(path, "rt") as file:
            smiles = [
                row["smiles"].strip() for row in csv.DictReader(file) if row["smiles"] != "FAIL"
            ]  # ToxCast has it
        yield from random.Random(0).sample(smiles, min(limit, len(smiles)))


def check_round_trip(strings):
    strings = list(strings)
    batch = tok(strings).input_ids
    for text, ids in zip(strings, batch, strict=True):
        assert (ids[0], ids[-1]) == (tok.cls_token_id, tok.sep_token_id)
        assert tok.unk_token_id not in ids, (text, tok.convert_ids_to_tokens(ids))
        assert len(ids) > 2
    for text, decoded in zip(strings, tok.batch_decode(batch, skip_special_tokens=True), strict=True):
        assert decoded == text


def test_vocabulary_is_frozen():
    # A change here breaks every saved model: add tokens to the end only, and never after a release.
    assert len(VOCABULARY) == len(set(VOCABULARY)) == len(tok) == 508
    assert tok.get_vocab() == {token: index for index, token in enumerate(VOCABULARY)}
    assert (
        hashlib.sha256(" ".join(VOCABULARY).encode()).hexdigest()
        == "1f440c7f29b8afc8b2fbfb5c254085f128c53b4d189f88a5874576900486f112"
    )
    assert VOCABULARY[:5] == SPECIAL_TOKENS
    ids = (tok.pad_token_id, tok.unk_token_id, tok.cls_token_id, tok.sep_token_id, tok.mask_token_id)
    assert ids == (0, 1, 2, 3, 4)


def test_shape_of_a_batch():
    batch = tok(["CCO", "C"], padding=True)
    assert dict(batch) == {
        "input_ids": [
            [2, *tok.convert_tokens_to_ids(["C", "C", "O"]), 3],
            [2, tok.convert_tokens_to_ids("C"), 3, 0, 0],
        ],
        "attention_mask": [[1] * 5, [1, 1, 1, 0, 0]],
    }
    assert tok.model_max_length == 512
    assert len(tok("C" * 600, truncation=True).input_ids) == 512
    assert tok.tokenize(" CCO\n") == ["C", "C", "O"]
    assert tok.tokenize("CC[MASK]O") == ["C", "C", "[MASK]", "O"]
    assert tok("C", "O").input_ids == [2, *tok.convert_tokens_to_ids(["C", "[SEP]", "O"]), 3]
    assert tok("").input_ids == [2, 3]


@pytest.mark.parametrize(
    ("smiles", "tokens"),
    [
        ("ClCBr", "Cl C Br"),
        ("CSc1ccccc1", "C S c 1 c c c c c 1"),  # no scandium
        ("Cn1cnoc1Cc1ccno1", "C n 1 c n o c 1 C c 1 c c n o 1"),  # neither copernicium nor nobelium
        ("C[C@H](N)C(=O)[O-]", "C [C@H] ( N ) C ( = O ) [O-]"),
        ("c1cc[nH]c1", "c 1 c c [nH] c 1"),
        ("C%12CC%12", "C %12 C C %12"),
        ("C%(123)C", "C %( 1 2 3 ) C"),
        ("C12CC1C2", "C 1 2 C C 1 C 2"),
        ("F/C=C\\F", "F / C = C \\ F"),
        ("N->[Pt]<-N", "N -> [Pt] <- N"),
        ("CC>>CO", "C C >> C O"),
        ("CC>O>CO", "C C > O > C O"),
        ("[13CH3:21]", "[ 1 3 C H 3 : 2 1 ]"),
        ("[Co@OH12H2-3]", "[ Co @OH12 H 2 - 3 ]"),
        ("[Sc]", "[ Sc ]"),
        ("[15nH]", "[ 1 5 n H ]"),
        ("[75se]", "[ 7 5 se ]"),
        ("[#6H]", "[ # 6 H ]"),
        ("[*:1]", "[ * : 1 ]"),
        ("[Uuo]", "[ Uuo ]"),
    ],
)
def test_tokens_are_the_symbols(smiles, tokens):
    assert tok.tokenize(smiles) == tokens.split()


BRACKET = re.compile(
    r"(?P<isotope>\d*)(?P<symbol>#\d+|[A-Z][a-z]{0,2}|[a-z]{1,2}|\*)(?P<chirality>@(?:@|(?:TH|AL|SP|TB|OH)\d{0,2})?)?"
    r"(?P<hydrogen>H\d*)?(?P<charge>\+\+|--|[+-]\d*)?(?P<map>:\d+)?"
)


def symbols(atom):
    """Cut a bracket atom into its OpenSMILES symbols, by the grammar."""
    isotope, symbol, chirality, hydrogen, charge, label = (
        part or "" for part in BRACKET.fullmatch(atom[1:-1]).groups()
    )
    signed = [charge] if charge in ("++", "--") else [*charge]
    element = [*symbol] if symbol[0] == "#" else [symbol]
    return ["[", *isotope, *element, *([chirality] if chirality else []), *hydrogen, *signed, *label, "]"]


def check_brackets(atoms):
    atoms = list(atoms)
    check_round_trip(atoms)
    for atom, encoding in zip(atoms, tok.backend_tokenizer.encode_batch(atoms, add_special_tokens=False), strict=True):
        tokens = encoding.tokens
        assert tokens in ([atom], symbols(atom)), (atom, tokens)


@pytest.mark.parametrize("chirality", ["", *CHIRALITY])
def test_every_chirality_class_on_every_element(chirality):
    hydrogens = ["", "H", "H2"]
    check_brackets(
        f"[{isotope}{element}{chirality}{hydrogen}{charge}{label}]"
        for element in ELEMENTS + AROMATIC
        for isotope, hydrogen, charge, label in [("", "", "", ""), ("13", "H", "-2", ":10"), ("", "H2", "++", "")]
        if hydrogen in hydrogens
    )


def test_every_element_with_isotopes_charges_hydrogens_and_classes():
    rest = itertools.product(["", "14", "300"], ["", "H", "H9"], CHARGES, ["", ":0", ":123"])
    for isotope, hydrogen, charge, label in rest:
        check_brackets(
            f"[{isotope}{element}{hydrogen}{charge}{label}]" for element in [*ELEMENTS, *AROMATIC, "*", "#6"]
        )


def digits(prefix):
    return st.one_of(st.just(""), st.from_regex(rf"{re.escape(prefix)}[0-9]{{1,5}}", fullmatch=True))


@given(
    digits(""),
    st.one_of(st.sampled_from([*ELEMENTS, *AROMATIC, "*"]), st.integers(0, 118).map("#{}".format)),
    st.sampled_from(["", *CHIRALITY]),
    st.sampled_from(["", "H", *(f"H{n}" for n in range(10))]),
    st.sampled_from(CHARGES),
    digits(":"),
)
def test_brackets_made_by_the_grammar(isotope, symbol, chirality, hydrogen, charge, label):
    check_brackets([f"[{isotope}{symbol}{chirality}{hydrogen}{charge}{label}]"])


def test_ring_closures():
    numbers = [*map(str, range(10)), *(f"%{n}" for n in range(10, 100)), *(f"%({n})" for n in [0, 7, 42, 100, 99999])]
    check_round_trip(f"C{number}CC{number}" for number in numbers)
    check_round_trip(f"C={number}CC{number}" for number in numbers)


def test_whatever_rdkit_writes_of_a_ring_system():
    cage = Chem.MolFromSmiles(
        "C1" + "".join(f"C%{n}" for n in range(11, 99)) + "C1" + "".join(f"C%{n}" for n in range(11, 99))
    )
    check_round_trip([Chem.MolToSmiles(cage), *Chem.MolToRandomSmilesVect(cage, 20, randomSeed=1)])


def test_dots_wildcards_and_reactions():
    check_round_trip(
        ["[Na+].[Cl-]", "*C", "C?", "[*]C", "[#0]", "CC>>CO", "C.C>[Pt]>CC.O", "C$C", "C~C", "c:c", "[CH3:1]>>[CH2:1]"]
    )


@pytest.mark.parametrize("number", range(1, 119))
def test_rdkit_writes_nothing_unknown_of_an_element(number):
    atom = Chem.Atom(number)
    mol = Chem.RWMol()
    mol.AddAtom(atom)
    texts = []
    for isotope, charge, label, hydrogens in itertools.product([0, 2, 250], [-4, -1, 0, 1, 9], [0, 12], [0, 1, 4]):
        atom = mol.GetAtomWithIdx(0)
        atom.SetIsotope(isotope)
        atom.SetFormalCharge(charge)
        atom.SetAtomMapNum(label)
        atom.SetNumExplicitHs(hydrogens)
        atom.SetNoImplicit(True)  # noqa: FBT003 (RDKit's signature)
        texts.append(Chem.MolToSmiles(mol))
    check_round_trip(texts)
    check_brackets(text for text in texts if text.startswith("["))


def written(smiles):
    """As given, canonical, random, and as RDKit writes it with other options."""
    yield smiles
    mol = Chem.MolFromSmiles(smiles)
    if mol is not None:
        yield Chem.MolToSmiles(mol)
        yield Chem.MolToSmiles(mol, doRandom=True)


def written_richly(smiles):
    yield from written(smiles)
    mol = Chem.MolFromSmiles(smiles)
    if mol is not None:
        yield Chem.MolToSmiles(mol, allBondsExplicit=True, allHsExplicit=True)
        yield Chem.MolToSmiles(mol, kekuleSmiles=True, doRandom=True)
        yield Chem.MolToSmiles(Chem.AddHs(mol), doRandom=True)


def test_real_molecules():
    check_round_trip(text for smiles in [*NCI[::5], *moleculenet(100)] for text in written(smiles))
    check_round_trip(text for smiles in [*NCI[1::50], *moleculenet(10)] for text in written_richly(smiles))


@pytest.mark.slow
def test_every_real_molecule():
    everything = [*NCI, *moleculenet(10**9)]
    for start in range(0, len(everything), 1000):
        check_round_trip(text for smiles in everything[start : start + 1000] for text in written(smiles))


@st.composite
def molecules(draw):
    """Trees of any atoms with any bonds, some closed to rings, as RDKit writes them."""
    mol = Chem.RWMol()
    bonds = [Chem.BondType.SINGLE, Chem.BondType.DOUBLE, Chem.BondType.TRIPLE, Chem.BondType.QUADRUPLE]
    bonds += [Chem.BondType.DATIVE, Chem.BondType.ZERO, Chem.BondType.AROMATIC]
    count = draw(st.integers(1, 25))
    for index in range(count):
        atom = Chem.Atom(draw(st.one_of(st.sampled_from([6, 7, 8, 16, 17]), st.integers(0, 118))))
        atom.SetFormalCharge(draw(st.integers(-9, 9)))
        atom.SetIsotope(draw(st.sampled_from([0, 0, 2, 13, 400])))
        atom.SetAtomMapNum(draw(st.sampled_from([0, 0, 1, 99, 999])))
        atom.SetNumExplicitHs(draw(st.integers(0, 9)))
        atom.SetIsAromatic(draw(st.booleans()))
        mol.AddAtom(atom)
        if index and draw(st.integers(0, 9)):
            mol.AddBond(draw(st.integers(0, index - 1)), index, draw(st.sampled_from(bonds)))
    for _ in range(draw(st.integers(0, 8))):
        first, second = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
        if first != second and mol.GetBondBetweenAtoms(first, second) is None:
            mol.AddBond(first, second, draw(st.sampled_from(bonds)))
    mol.UpdatePropertyCache(strict=False)
    return Chem.MolToSmiles(mol, canonical=draw(st.booleans()), doRandom=draw(st.booleans()))


@given(molecules())
def test_made_molecules(smiles):
    check_round_trip([smiles])


def test_strings_that_are_no_smiles_are_unknown():
    for text in ["hello world", "Cé", "C!", "[Xy]", "[" + "C" * 500 + "]"]:
        assert tok.unk_token in tok.tokenize(text)
        with pytest.raises(InvalidSmilesError):
            align_tokens(text)


def test_align_tokens():
    assert align_tokens("C=CO") == [0, (0, 1), 1, 2]
    assert align_tokens("[13CH4]") == [0] * 7
    assert align_tokens("C%(100)CCl.C%(100)") == [0, *[(0, 3)] * 5, 1, 2, None, 3, *[(0, 3)] * 5]
    assert align_tokens(" CO ") == [0, 1]
    with pytest.raises(InvalidSmilesError, match="unclosed ring"):
        align_tokens("C1CC")
    for smiles in NCI[::50]:
        if Chem.MolFromSmiles(smiles) is None:
            continue
        owners = align_tokens(smiles)
        tokens = tok.tokenize(smiles)
        assert len(owners) == len(tokens)
        atoms = [owner for owner in owners if isinstance(owner, int)]
        assert sorted(set(atoms)) == list(range(chem.parse(smiles).GetNumAtoms()))
        assert all(owner is None for owner, token in zip(owners, tokens, strict=True) if token in {"(", ")", "."})


SAMPLES = ["C[C@H](N)C(=O)O", "[13C@OH21H2+3:22]C%(123)", "ClC%11BrC%11", "CC[MASK]", " CCO ", "x y"]


def test_save_and_load(tmp_path):
    saved = tok.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    assert all(Path(path).exists() for path in saved)
    for other in [SmilesTokenizer.from_pretrained(tmp_path), pickle.loads(pickle.dumps(tok))]:  # noqa: S301
        assert type(other) is SmilesTokenizer
        assert dict(other(SAMPLES)) == dict(tok(SAMPLES))
        assert other.get_vocab() == tok.get_vocab()
        assert other.model_max_length == 512
        assert other.backend_tokenizer.to_str() == tok.backend_tokenizer.to_str()


def test_auto_tokenizer_needs_no_smilex(tmp_path):
    tok.save_pretrained(tmp_path)
    code = f"""
import sys
sys.modules["smilex"] = None
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained({str(tmp_path)!r})
batch = tok({SAMPLES!r})
assert list(batch) == ["input_ids", "attention_mask"], list(batch)
print(batch.input_ids)
print([tok.decode(ids, skip_special_tokens=True) for ids in batch.input_ids])
print(tok.model_max_length, tok.padding_side, tok.pad_token_id, tok.mask_token_id)
"""
    done = subprocess.run(
        [sys.executable, "-P", "-"], input=code, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ids = tok(SAMPLES).input_ids
    decoded = [tok.decode(row, skip_special_tokens=True) for row in ids]
    assert done.stdout.splitlines() == [str(ids), str(decoded), "512 right 0 4"]


def test_a_saved_vocabulary_is_kept(tmp_path):
    tok.save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    text = path.read_text()
    assert text.count('"[Gd+3]"') == 1
    path.write_text(text.replace('"[Gd+3]"', '"[Gd+9]"'))
    other = SmilesTokenizer.from_pretrained(tmp_path)
    assert "[Gd+9]" in other.get_vocab()
    assert "[Gd+3]" not in other.get_vocab()
