"""Parsing with reasons, standard forms, scaffolds, and alignment against RDKit itself."""

import csv
import gzip
import multiprocessing
import pickle
import random
import re
import string
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem, RDConfig

from smilex import chem
from smilex.errors import InvalidSmilesError, SmilexError

MOLECULENET = Path(__file__).parents[1] / "../shared/data/moleculenet"
NCI = [line.split()[0] for line in (Path(RDConfig.RDDataDir) / "NCI/first_5K.smi").read_text().splitlines()]

BOND_SYMBOLS = {
    "-": {Chem.BondType.SINGLE},
    "=": {Chem.BondType.DOUBLE},
    "#": {Chem.BondType.TRIPLE},
    "$": {Chem.BondType.QUADRUPLE},
    ":": {Chem.BondType.AROMATIC},
    # RDKit takes a direction between two aromatic atoms for an aromatic bond.
    "/": {Chem.BondType.SINGLE, Chem.BondType.AROMATIC},
    "\\": {Chem.BondType.SINGLE, Chem.BondType.AROMATIC},
    "~": {Chem.BondType.UNSPECIFIED},
    "->": {Chem.BondType.DATIVE},
    "<-": {Chem.BondType.DATIVE},
}


def moleculenet(limit):
    if not MOLECULENET.exists():
        pytest.skip("MoleculeNet files are not there")
    for path in sorted(MOLECULENET.glob("*.csv.gz")):
        with gzip.open(path, "rt") as file:
            smiles = [row["smiles"].strip() for row in csv.DictReader(file)]
        yield from random.Random(0).sample(smiles, min(limit, len(smiles)))


def valid(smiles):
    try:
        chem.parse(smiles)
    except InvalidSmilesError:
        return False
    return True


@pytest.mark.parametrize(
    ("smiles", "reason"),
    [
        ("C1CC", "unclosed ring"),
        ("CO(C)C", "explicit valence for atom # 1 O, 3, is greater than permitted"),
        ("c1cccc1", "can't kekulize mol.  Unkekulized atoms: 0 1 2 3 4"),
        ("CC(C", "extra open parentheses at position 3"),
        ("CC)C", "extra close parentheses at position 3"),
        ("CX", "syntax error at position 2"),
        ("[Zz]", "syntax error at position 2"),
        ("C11", "duplicated ring closure 1 bonds atom 0 to itself"),
        ("[b]", "non-ring atom 0 marked aromatic"),
        ("[C@TB21](C)F", "invalid chiral specification on atom 0"),
        ("[#119]", "atomic number not found"),
        ("CC>>CO", "syntax error at position 3"),
        ("", "empty string"),
        (" \t", "empty string"),
        ("CCO ethanol", "text after a blank at position 4; give the SMILES alone, without a name"),
        ("CCO\tethanol", "text after a blank at position 4; give the SMILES alone, without a name"),
        ("CCO |$;;x$|", "text after a blank at position 4; give the SMILES alone, without a name"),
        ("C\x00C", "control character '\\x00' at position 2"),
        ("C\x7fC", "control character '\\x7f' at position 2"),
        ("Cé", "non-ASCII character '\\xe9' at position 2"),
        ("C\u200bC", "non-ASCII character '\\u200b' at position 2"),
        ("C\ud800", "non-ASCII character '\\ud800' at position 2"),
        ("C" * 10_000, "10000 characters long, the limit is 5000"),
        (None, "not a string but NoneType"),
        (float("nan"), "not a string but float"),
        (b"CC", "not a string but bytes"),
        (12, "not a string but int"),
    ],
)
def test_parse_says_what_is_wrong(smiles, reason, capfd):
    with pytest.raises(InvalidSmilesError) as error:
        chem.parse(smiles)
    assert error.value.reason == reason
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("function", [chem.canonicalize, chem.align, chem.murcko_scaffold])
def test_every_entry_gives_the_reason(function):
    with pytest.raises(InvalidSmilesError, match="unclosed ring"):
        function("C1CC")
    with pytest.raises(InvalidSmilesError, match="not a string"):
        function(None)


def test_blanks_around_are_dropped():
    assert chem.canonicalize(" OCC \n") == "CCO"


def test_quiet_where_rdkit_would_warn(capfd):
    chem.parse("[HH]")  # "not removing hydrogen atom without neighbors"
    chem.align("[HH]")
    chem.canonicalize("[H+]")
    chem.murcko_scaffold("[H]c1ccccc1")
    chem.standardize(chem.parse("[Na+].[O-]C(=O)C"), neutralize=True)
    chem.enumerate_smiles("[HH]", 3)
    assert capfd.readouterr() == ("", "")


def test_log_works_for_the_user_again():
    code = "from smilex.chem import parse; from rdkit import Chem; parse('C'); Chem.MolFromSmiles('C1CC')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "unclosed ring" in done.stderr


def test_chem_is_light():
    code = "import sys, smilex.chem; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_reasons_from_many_threads(capfd):
    bad = {"C1CC": "unclosed ring", "CX": "syntax error", "CO(C)C": "explicit valence", "CC(C": "extra open"}
    wrong = []

    def work(smiles, reason):
        for _ in range(200):
            try:
                chem.parse(smiles)
            except InvalidSmilesError as error:
                if not error.reason.startswith(reason):
                    wrong.append(error.reason)

    threads = [threading.Thread(target=work, args=item) for item in bad.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert capfd.readouterr() == ("", "")


def test_error_comes_back_from_a_worker_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(InvalidSmilesError) as error:
        pool.apply(chem.parse, ("C1CC",))
    assert (error.value.smiles, error.value.reason) == ("C1CC", "unclosed ring")
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)  # noqa: S301 (our own bytes)


LONGEST = chem.MAX_SMILES_LENGTH
DEEP = [
    "C" * LONGEST,
    "C(" * (LONGEST // 3) + "C" + ")" * (LONGEST // 3),
    "C1CC1" * (LONGEST // 5),
    "[C@H](F)" * (LONGEST // 8) + "C",
    "(" * LONGEST,
    "C(" * (LONGEST // 2),
    "[" * LONGEST,
    "[C" * (LONGEST // 2),
    "%11" * (LONGEST // 3),
    "C" + "1" * (LONGEST - 1),
    "C" + "." * (LONGEST - 1),
    "[" + "9" * (LONGEST - 3) + "C]",
    "C%(" + "9" * (LONGEST - 4) + ")",
]


def test_nothing_of_the_longest_length_crashes():
    code = f"""
from smilex import chem
for smiles in {DEEP!r}:
    try:
        chem.canonicalize(smiles), chem.enumerate_smiles(smiles, 1), chem.align(smiles)
    except chem.InvalidSmilesError as error:
        assert len(error.reason) < 200, error.reason
"""
    done = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


ALPHABET = "CNOcnos[]()=#/\\.123%@+-:H*$~<> l?X\n\x00é"


@given(st.one_of(st.text(ALPHABET, max_size=40), st.text(max_size=20), st.text(string.printable, max_size=20)))
def test_any_string_is_a_molecule_or_an_error(text):
    try:
        assert len(chem.align(text)) == len(text)
        reason = "none"
    except InvalidSmilesError as error:
        reason = error.reason
    assert 0 < len(reason) < 200
    assert reason.isprintable()


def test_standardize():
    salt = chem.parse("CC(=O)[O-].[Na+].O")
    assert Chem.MolToSmiles(chem.standardize(salt)) == "CC(=O)[O-]"
    assert Chem.MolToSmiles(chem.standardize(salt, neutralize=True)) == "CC(=O)O"
    assert salt.GetNumAtoms() == 6
    assert Chem.MolToSmiles(chem.standardize(chem.parse("C[N+](C)(C)C.[Cl-]"), neutralize=True)) == "C[N+](C)(C)C"


def test_canonicalize_keeps_everything():
    assert chem.canonicalize("[Na+].F[C@](Cl)(Br)[13CH3].[CH3:7]") == chem.canonicalize(
        "[CH3:7].Br[C@](Cl)(F)[13CH3].[Na+]".replace("[C@]", "[C@@]")
    )
    assert "[13CH3]" in chem.canonicalize("[13CH3]C")


def test_enumerate_is_seeded_and_the_same_molecule():
    aspirin = "CC(=O)Oc1ccccc1C(=O)O"
    first = chem.enumerate_smiles(aspirin, 20, seed=3)
    chem.enumerate_smiles("CCO", 5, seed=9)
    assert first == chem.enumerate_smiles(aspirin, 20, seed=3)
    assert first != chem.enumerate_smiles(aspirin, 20, seed=4)
    assert len(first) == 20
    assert len(set(first)) > 10
    assert {chem.canonicalize(s) for s in first} == {chem.canonicalize(aspirin)}
    assert chem.enumerate_smiles(aspirin, 0) == []
    assert len(chem.enumerate_smiles(aspirin, 2, seed=2**40)) == 2
    with pytest.raises(SmilexError, match="n must be at least 0, not -1"):
        chem.enumerate_smiles(aspirin, -1)


def test_scaffold_is_deepchems():
    _generate_scaffold = pytest.importorskip("deepchem.splits.splitters")._generate_scaffold
    for smiles in filter(valid, [*NCI[::20], *moleculenet(20)]):
        for chirality in (False, True):
            expected = _generate_scaffold(smiles, include_chirality=chirality)
            assert chem.murcko_scaffold(smiles, include_chirality=chirality) == expected
        assert chem.murcko_scaffold(chem.parse(smiles)) == _generate_scaffold(smiles)


@pytest.mark.parametrize(
    ("smiles", "owners"),
    [
        ("C=CO", [0, (0, 1), 1, 2]),
        ("CC(=O)Cl", [0, 1, None, (1, 2), 2, None, 3, 3]),
        ("C=1CC1", [0, (0, 2), (0, 2), 1, 2, (0, 2)]),
        ("C1CC=1", [0, (0, 2), 1, 2, (0, 2), (0, 2)]),
        ("C1CC1CC1CC1", [0, (0, 2), 1, 2, (0, 2), 3, 4, (4, 6), 5, 6, (4, 6)]),  # a number used twice
        ("C%11CC%11", [0, *[(0, 2)] * 3, 1, 2, *[(0, 2)] * 3]),
        ("C%(123)CC%(123)", [0, *[(0, 2)] * 6, 1, 2, *[(0, 2)] * 6]),
        ("C%(1)CC1", [0, *[(0, 2)] * 4, 1, 2, (0, 2)]),
        ("C12CC1C2", [0, (0, 2), (0, 3), 1, 2, (0, 2), 3, (0, 3)]),
        ("C1.C1", [0, (0, 1), None, 1, (0, 1)]),
        ("C(C.O)N", [0, None, 1, None, 2, None, 3]),
        ("N->[Fe]<-N", [0, (0, 1), (0, 1), 1, 1, 1, 1, (1, 2), (1, 2), 2]),
        ("F/C=C\\F", [0, (0, 1), 1, (1, 2), 2, (2, 3), 3]),
        ("C\\\\C", [0, (0, 1), (0, 1), 1]),
        ("C$C~C:C", [0, (0, 1), 1, (1, 2), 2, (2, 3), 3]),
        ("[H]O[H]", [None, None, None, 0, None, None, None]),
        ("C-[H]", [0, None, None, None, None]),
        ("[H]OC", [None, None, None, 0, 1]),
        ("[2H]C", [0, 0, 0, 0, 1]),
        ("[H][H]", [0, 0, 0, 1, 1, 1]),
        ("[13CH3:5]C", [*[0] * 9, 1]),
        ("C*", [0, 1]),
        (" CO ", [None, 0, 1, None]),
    ],
)
def test_align_known_answers(smiles, owners):
    assert chem.align(smiles) == owners


PIECE = re.compile(r"\[[^\]]*\]|Br|Cl|->|<-|%\(\d+\)|%\d\d|.")
SYMBOL = re.compile(r"(?=[\[A-Za-z*])\[?\d*(#\d+|[A-Z][a-z]?|[a-z][a-z]?|\*)")


def check_alignment(smiles):
    """Read the string by an own, simpler rule and compare with the molecule.

    Bond types and aromaticity are those of the unsanitized molecule: sanitizing turns N(=O)=O into [N+](=O)[O-].
    """
    mol, raw = chem.parse(smiles), Chem.MolFromSmiles(smiles, sanitize=False)
    owners = chem.align(smiles)
    pieces = [(match[0], owners[match.start() : match.end()]) for match in PIECE.finditer(smiles)]
    atoms = [owned[0] for piece, owned in pieces if SYMBOL.match(piece)]
    assert sorted(owner for owner in atoms if owner is not None) == list(range(mol.GetNumAtoms())), smiles
    assert len(atoms) == raw.GetNumAtoms()
    ring_bonds = Counter()
    for piece, (owner, *rest) in pieces:
        assert all(other == owner for other in rest), (smiles, piece)
        if owner is None:
            assert piece in "()." or ("[H]" in smiles and piece in ["[H]", "-", "/", "\\"]), (smiles, piece)
        elif match := SYMBOL.match(piece):
            element = "*" if match[1] == "#0" else match[1]
            assert element.lower() == mol.GetAtomWithIdx(owner).GetSymbol().lower(), (smiles, piece)
            assert element.islower() == raw.GetAtomWithIdx(atoms.index(owner)).GetIsAromatic(), (smiles, piece)
        else:
            assert owner[0] < owner[1]
            assert mol.GetBondBetweenAtoms(*owner) is not None, (smiles, owner)
            bond = raw.GetBondBetweenAtoms(*(atoms.index(end) for end in owner))
            if piece in BOND_SYMBOLS:
                assert bond.GetBondType() in BOND_SYMBOLS[piece], (smiles, piece, owner)
            else:
                ring_bonds[owner] += 1
    assert set(ring_bonds.values()) <= {2}, smiles


def both_ways(smiles):
    yield smiles
    mol = chem.parse(smiles)
    yield Chem.MolToSmiles(mol)
    yield from chem.enumerate_smiles(smiles, 1)
    if mol.GetNumAtoms() < 60:
        yield Chem.MolToSmiles(Chem.AddHs(mol), doRandom=True)
        yield Chem.MolToSmiles(mol, allBondsExplicit=True)
        yield Chem.MolToSmiles(mol, kekuleSmiles=True, doRandom=True)


def test_align_agrees_with_rdkit():
    for smiles in filter(valid, [*NCI[::10], *moleculenet(25)]):
        for written in both_ways(smiles):
            if valid(written):
                check_alignment(written)


@pytest.mark.slow
def test_align_agrees_with_rdkit_on_thousands():
    for smiles in filter(valid, [*NCI, *moleculenet(500)]):
        for written in both_ways(smiles):
            if valid(written):
                check_alignment(written)
