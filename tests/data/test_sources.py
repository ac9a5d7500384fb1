import gzip
import sys
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
from rdkit import Chem

from smilex.data import sources
from smilex.data.readers import Unreadable
from smilex.data.sources import open_source
from smilex.errors import SmilexError

SMILES = ["CCO", "c1ccccc1", "OCC"]


def rows_of(source, **settings):
    opened = open_source(source, **settings)
    first, second = list(opened.rows()), list(opened.rows())
    assert first == second  # the digest takes one reading, the cleaning another
    return first


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        content = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


@pytest.mark.parametrize("gz", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.smi", "CCO 1\nc1ccccc1 2\nOCC 3\n"),
        ("a.TXT", "CCO\nc1ccccc1\nOCC"),
        ("a.csv", "smiles,y\nCCO,1\nc1ccccc1,2\nOCC,3\n"),
        ("a.tsv", "y\tsmiles\n1\tCCO\n2\tc1ccccc1\n3\tOCC\n"),
    ],
)
def test_text_files(write, name, content, gz):
    path = write(name + gz, content)
    assert rows_of(path) == rows_of(str(path)) == SMILES
    assert open_source(path).total in (2, 3, 4)


@pytest.mark.parametrize("gz", ["", ".gz"])
def test_parquet(tmp_path, write, gz):
    pd.DataFrame({"smiles": SMILES}).to_parquet(tmp_path / "b.parquet")
    assert rows_of(write("a.parquet" + gz, (tmp_path / "b.parquet").read_bytes())) == SMILES


@pytest.mark.parametrize("gz", ["", ".gz"])
def test_sdf(write, gz):
    block = "".join(f"{Chem.MolToMolBlock(Chem.MolFromSmiles(smiles))}\n$$$$\n" for smiles in SMILES)
    path = write("a.sdf" + gz, block)
    assert rows_of(path) == ["CCO", "c1ccccc1", "CCO"]
    assert open_source(path).total == 3


@pytest.mark.parametrize(
    "source",
    [
        SMILES,
        tuple(SMILES),
        np.array(SMILES),
        pd.Series(SMILES, index=[5, 6, 7]),
        datasets.Dataset.from_dict({"smiles": SMILES}),
    ],
)
def test_things_in_memory(source):
    assert rows_of(source) == SMILES


def test_a_generator_is_read_once():
    assert rows_of(s for s in SMILES) == SMILES


def test_a_filtered_dataset_gives_the_rows_that_are_left():
    dataset = datasets.Dataset.from_dict({"smiles": SMILES, "y": [1, 2, 3]}).filter(lambda row: row["y"] != 2)
    assert rows_of(dataset) == ["CCO", "OCC"]


@pytest.mark.parametrize("make", [list, iter, lambda rows: datasets.Dataset.from_dict({"smiles": rows})])
def test_missing_values_are_rows(make):
    assert rows_of(make(["CCO", None])) == ["CCO", Unreadable("", "not a string", "NoneType")]


def test_control_characters_and_line_breaks_survive_the_spool():
    odd = ["C\nC", "C\udcff", "\u2028", '"']
    assert rows_of(iter(odd)) == odd


def test_digest_tells_contents_apart_and_nothing_else(write):
    contents = ["CCO\n", "CCO\nO\n", "CC\nO\n"]
    digests = {open_source(write("a.smi", content)).digest for content in contents}
    assert len(digests) == 3
    assert open_source(write("a.smi", contents[0])).digest == open_source(write("b.smi.gz", contents[0])).digest
    assert open_source(SMILES).digest == open_source(iter(SMILES)).digest
    assert open_source(["CC", "O"]).digest != open_source(["C", "CO"]).digest


def test_digest_depends_on_the_column(write):
    path = write("a.csv", "smiles,product\nCCO,O\n")
    assert open_source(path).digest != open_source(path, "product").digest
    assert rows_of(path, smiles_column="product") == ["O"]


def test_nci5k():
    rows = rows_of("nci5k")
    assert (len(rows), rows[0], rows[-1]) == (4999, "CC1=CC(=O)C=CC1=O", rows[-1])


def test_moses_is_read_without_importing_moses():
    try:
        opened = open_source("moses")
    except SmilexError:
        pytest.skip("molsets is not installed")
    assert opened.total == 1_936_962 + 3  # the molecules of the data set, and a header in each of its three files
    assert next(opened.rows()).startswith("CCCS(=O)c1ccc2")
    assert "moses" not in sys.modules


def test_moses_that_is_not_installed_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(SmilexError, match=r"pip install --no-deps molsets==0\.3\.1$"):
        open_source("moses")


def test_a_file_goes_before_a_built_in_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nci5k").mkdir()
    with pytest.raises(SmilexError, match="nci5k is a directory"):
        open_source("nci5k")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.smi", "there is no file .*missing.smi$"),
        ("missing.csv.gz", "there is no file .*missing.csv.gz$"),
        (
            "nci6k",
            "'nci6k' is neither a file nor a built-in corpus; built-in corpora: moses, nci5k; files: .smi, .txt, .csv",
        ),
        ("C" * 10_000, r"'C+…C+ \[10000 characters\]' is neither a file nor a built-in corpus"),
        ("C\x00C", r"'C\\x00C' is neither a file nor"),
        (7, "a corpus is a path, a built-in name, a dataset or an iterable of SMILES, not 7"),
    ],
)
def test_what_is_not_there(name, message):
    with pytest.raises(SmilexError, match=message):
        open_source(name)


def test_directory(tmp_path):
    with pytest.raises(SmilexError, match=r"is a directory: give a file \("):
        open_source(tmp_path)


@pytest.mark.parametrize(("name", "shown"), [("a.xlsx", ".xlsx"), ("a.zip", ".zip"), ("molecules", "")])
def test_unknown_kind_of_file(write, name, shown):
    with pytest.raises(
        SmilexError, match=rf"unknown kind of file '{shown}'; known are \.smi, \.txt, \.csv, \.tsv, \.parquet, \.sdf"
    ):
        open_source(write(name, "CCO\n"))


def test_damaged_gzip(tmp_path):
    whole = gzip.compress(b"CCO\n" * 1000)
    for damaged in (whole[:-10], b"CCO\n", whole[:15] + b"\x00\x01\x02\x03" + whole[19:]):
        (tmp_path / "a.smi.gz").write_bytes(damaged)
        with pytest.raises(SmilexError, match="is damaged or no gzip file: "):
            open_source(tmp_path / "a.smi.gz")


def test_errors_of_readers_name_the_file(write):
    path = write("a.csv", "id,y\n1,2\n")
    with pytest.raises(SmilexError, match=r"a\.csv: no column is known to hold SMILES: .*'id', 'y'"):
        list(open_source(path).rows())


def test_dataset_without_a_smiles_column():
    with pytest.raises(SmilexError, match=r"no column is known to hold SMILES: .* the columns are: 'text'"):
        open_source(datasets.Dataset.from_dict({"text": SMILES}))


@pytest.mark.parametrize("table", [pd.DataFrame({"smiles": SMILES}), datasets.DatasetDict(), {"smiles": SMILES}])
def test_a_table_in_place_of_a_list(table):
    with pytest.raises(SmilexError, match=r"is no list of molecules: give the part .*, as in table\['smiles'\]"):
        open_source(table)


def test_file_that_may_not_be_read(write, monkeypatch):
    def refuse(*_args):
        raise PermissionError(13, "Permission denied")

    path = write("a.smi", "CCO\n")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SmilexError, match=r"^cannot read .*a\.smi: Permission denied$"):
        open_source(path)


def test_iterables_have_no_columns():
    with pytest.raises(SmilexError, match="an iterable of SMILES has no columns"):
        open_source(SMILES, "smiles")
