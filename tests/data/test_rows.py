import warnings

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem

from smilex.data.rows import InvalidMoleculeWarning, InvalidRow, describe_invalid, encode_rows, warn_invalid
from smilex.errors import SmilexError
from smilex.tokenization import SmilesTokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return SmilesTokenizer()


def encode(smiles, tokenizer, **settings):
    return encode_rows(smiles, tokenizer, **({"max_length": 512} | settings))


def test_output_row_i_belongs_to_input_i(tokenizer):
    rows = encode(["OCC", "C1CC", Chem.MolFromSmiles("c1ccccc1"), None, "", "N"], tokenizer)
    decoded = [ids and tokenizer.decode(ids, skip_special_tokens=True).replace(" ", "") for ids in rows.input_ids]
    assert decoded == ["CCO", None, "c1ccccc1", None, None, "N"]
    assert [row.index for row in rows.invalid] == [1, 3, 4]
    assert all(ids is None or (ids[0], ids[-1]) == (2, 3) for ids in rows.input_ids)


def test_strings_and_molecules_give_the_same_ids(tokenizer):
    smiles = ["C[C@H](N)C(=O)O", "[NH3+]CC(=O)[O-]", "F/C=C/F"]
    mols = [Chem.MolFromSmiles(s) for s in smiles]
    assert encode(smiles, tokenizer).input_ids == encode(mols, tokenizer).input_ids


def test_explicit_hydrogens_of_a_molecule_do_not_matter(tokenizer):
    mol = Chem.AddHs(Chem.MolFromSmiles("CCO"))
    assert encode([mol], tokenizer).input_ids == encode(["CCO"], tokenizer).input_ids


def test_as_written_when_not_canonical(tokenizer):
    ids = encode(["OCC"], tokenizer, canonical=False).input_ids[0]
    assert tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", "O", "C", "C", "[SEP]"]


@pytest.mark.parametrize("smiles", [["CCO", "N"], ("CCO", "N"), np.array(["CCO", "N"]), iter(["CCO", "N"])])
def test_any_iterable(tokenizer, smiles):
    assert len(encode(smiles, tokenizer).input_ids) == 2


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("", "empty: there is no SMILES"),
        ("  ", "empty: there is no SMILES"),
        (Chem.Mol(), "empty: there is no SMILES"),
        (None, "not a molecule: NoneType where a SMILES string or an RDKit molecule should be"),
        (float("nan"), "not a molecule: float where a SMILES string or an RDKit molecule should be"),
        ("C\x00C", "invalid SMILES: control character '\\x00' at position 2"),
        ("CC\u2013O", "invalid SMILES: non-ASCII character '\\u2013' at position 3"),
        ("C\udcff", "not UTF-8: byte 0xff at position 2"),
        ("C" * 511, "too long: 513 tokens with [CLS] and [SEP], the limit is 512"),
        ("C" * 10_000, "too long: 10000 characters, the limit is 5000"),
        ("C" * 1_000_000, "too long: 1000000 characters, the limit is 5000"),
    ],
)
def test_each_kind_of_bad_row_has_its_reason(tokenizer, item, reason):
    rows = encode(["CCO", item], tokenizer)
    assert rows.input_ids[1] is None
    assert rows.invalid == [InvalidRow(1, rows.invalid[0].smiles, reason)]


def test_unparsable_rows_say_what_rdkit_said(tokenizer):
    rows = encode(["C1CC", "CN(C)(C)(C)C", "hello"], tokenizer)
    assert [row.index for row in rows.invalid] == [0, 1, 2]
    assert all(row.reason.startswith("invalid SMILES: ") and "\n" not in row.reason for row in rows.invalid)
    assert "ring" in rows.invalid[0].reason
    assert "valence" in rows.invalid[1].reason


def test_the_longest_molecule_that_fits_is_kept(tokenizer):
    assert len(encode(["C" * 510], tokenizer).input_ids[0]) == 512


def test_unknown_tokens_never_reach_a_model(tokenizer):
    smiles = ["['Db']"]  # which RDKit reads as dubnium
    assert encode(smiles, tokenizer).input_ids == encode(["[Db]"], tokenizer).input_ids
    assert encode(smiles, tokenizer, canonical=False).invalid[0].reason.startswith("unknown token: ")


def test_a_name_behind_the_smiles_is_invalid(tokenizer):
    assert "without a name" in encode(["OCC ethanol"], tokenizer).invalid[0].reason


def test_errors_raise_names_row_string_and_reason(tokenizer):
    with pytest.raises(SmilexError, match=r"^row 1: 'C1CC' cannot be used: invalid SMILES: .*ring"):
        encode(["CCO", "C1CC"], tokenizer, errors="raise")
    with pytest.raises(SmilexError, match="errors is 'report' or 'raise', not 'ignore'"):
        encode(["CCO"], tokenizer, errors="ignore")


@pytest.mark.parametrize("one", ["CCO", Chem.MolFromSmiles("CCO"), None, 7])
def test_one_molecule_in_place_of_a_list(tokenizer, one):
    with pytest.raises(SmilexError, match=r"pass a list, for example \['CCO'\]"):
        encode(one, tokenizer)


@pytest.mark.parametrize("table", [pd.DataFrame({"smiles": ["CCO"]}), {"smiles": ["CCO"]}])
def test_a_table_in_place_of_a_list(tokenizer, table):
    with pytest.raises(SmilexError, match=r"is no list of molecules: give the part .*, as in table\['smiles'\]"):
        encode(table, tokenizer)
    assert len(encode(table["smiles"], tokenizer).input_ids[0]) == 5


def test_report_shows_five_rows_and_counts_the_rest():
    invalid = [InvalidRow(i, "X" * 100, "no molecule") for i in range(8)]
    lines = describe_invalid(invalid, 10).splitlines()
    assert lines[0] == "8 of 10 rows hold no molecule that can be used:"
    assert len(lines) == 7
    assert lines[-1] == "  and 3 more"
    assert all(len(line) < 120 for line in lines)


def test_warning_points_at_the_line_of_the_user():
    def public_function(invalid):
        warn_invalid(invalid, 2)

    with pytest.warns(InvalidMoleculeWarning, match="1 of 2 rows holds no molecule") as caught:
        public_function([InvalidRow(0, "C1CC", "no molecule")])
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        public_function([])
