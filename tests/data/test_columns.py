import gzip

import datasets
import pandas as pd
import pytest

from smilex.data.columns import COLUMN_NAMES, check_separator, column_names, pick_column
from smilex.data.properties import load_properties
from smilex.data.sources import open_source
from smilex.errors import SmilexError
from smilex.files import read_molecules


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["id", "smiles"], "smiles"),
        (["SMILES", "y"], "SMILES"),
        (["mol", "Class"], "mol"),
        (["Canonical_Smiles"], "Canonical_Smiles"),
        (["canonical_smiles", "smiles"], "smiles"),
        (["y", " smiles "], " smiles "),
    ],
)
def test_the_smiles_column_is_found_by_name(columns, expected):
    assert pick_column(columns, None) == expected


@pytest.mark.parametrize(
    ("columns", "asked", "message"),
    [
        (
            ["id", "y"],
            None,
            "no column is known to hold SMILES: name one with smiles_column; the columns are: 'id', 'y'",
        ),
        (
            ["smi", "mol"],
            None,
            "several columns may hold SMILES: name one with smiles_column; the columns are: 'smi', 'mol'",
        ),
        (["smiles", "SMILES"], None, "several columns may hold SMILES: name one with smiles_column; .*"),
        ([" smiles", "smiles"], None, "several columns may hold SMILES: .*"),
        (["mol", "mol"], "mol", r"several columns are called 'mol' \(smiles_column\): rename all but one"),
        ([], None, "no column is known to hold SMILES: .*"),
        (["id", "y"], "smiles", r"no column is called 'smiles' \(smiles_column\); the columns are: 'id', 'y'"),
    ],
)
def test_no_column_or_several_is_an_error_that_lists_them(columns, asked, message):
    with pytest.raises(SmilexError, match=f"^{message}$"):
        pick_column(columns, asked)


def test_column_names_are_cut_short():
    assert column_names(f"task{i}" for i in range(617)).endswith("'task11' and 605 more")


def labelled(path):
    return load_properties(path).smiles


def unlabelled(path):
    return list(open_source(path).rows())


def to_predict(path):
    return read_molecules(str(path))


READERS = [labelled, unlabelled, to_predict]
"""The ways of a file into fine-tuning, pretraining, and prediction or embedding."""


def write(path, table, **settings):
    if path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, **settings)
    return path


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("kind", [".csv", ".parquet"])
@pytest.mark.parametrize("name", [*COLUMN_NAMES, "SMILES", " smiles", "Canonical_SMILES "])
def test_every_reader_knows_the_same_names(tmp_path, read, kind, name):
    table = pd.DataFrame({"y": [1.5, 2.5, 3.5], name: ["CCO", "NA", "[Na+].[Cl-]"]})
    assert read(write(tmp_path / f"a{kind}", table)) == ["CCO", "NA", "[Na+].[Cl-]"]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["id", "y"], "no column is known to hold SMILES: name one with smiles_column; the columns are: 'id', 'y'$"),
        (["smi", "mol"], "several columns may hold SMILES: name one with smiles_column; the columns are: 'smi', 'mol'"),
        (["smiles", "SMILES"], "several columns may hold SMILES: name one with smiles_column"),
        (["smiles", "smiles"], "several columns may hold SMILES: name one with smiles_column"),
    ],
)
def test_every_reader_refuses_the_same_headers(tmp_path, read, names, message):
    path = write(tmp_path / "a.csv", pd.DataFrame([["C", "CC"], ["CC", "C"]], columns=names))
    with pytest.raises(SmilexError, match=message):
        read(path)


def test_tables_in_memory_follow_the_same_rule():
    table = pd.DataFrame({" SMI": ["C", "CC"], "y": [1.5, 2.5]})
    assert load_properties(table).smiles == ["C", "CC"]
    assert list(open_source(datasets.Dataset.from_pandas(table)).rows()) == ["C", "CC"]


def test_two_target_columns_of_one_name_are_an_error(tmp_path):
    table = pd.DataFrame([["C", 1.5, 2.5, 0], ["CC", 2.5, 1.5, 1]], columns=["smiles", "y", "y", "toxic"])
    for path in (write(tmp_path / "a.csv", table), write(tmp_path / "a.tsv", table, sep="\t")):
        with pytest.raises(SmilexError, match="target column 'y' occurs twice"):
            load_properties(path)
        with pytest.raises(SmilexError, match=r"no target column 'y\.1'"):
            load_properties(path, target="y.1")
        assert load_properties(path, target="toxic").kind == "classification"  # the others are not asked for


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("name", "separator", "message"),
    [
        ("a.csv", ";", "look separated by ';', not by ','"),
        ("a.csv", "\t", "look separated by tabs, not by ','"),
        ("a.tsv", ",", "look separated by ',', not by tabs"),
        ("a.tsv", ";", "look separated by ';', not by tabs"),
    ],
)
@pytest.mark.parametrize("names", [["smiles", "y"], ["id", "SMILES"], ["id", "drug"]])
def test_every_reader_says_how_cells_are_separated(tmp_path, read, name, separator, message, names):
    # Numbers with a comma, as where semicolons separate cells, or with a point.
    path = write(tmp_path / name, pd.DataFrame([["C", "1,5"], ["CC", "2.5"]], columns=names), sep=separator)
    with pytest.raises(SmilexError, match=message) as caught:
        read(path)
    assert name in str(caught.value)
    assert "save it with ',' as .csv or tabs as .tsv" in str(caught.value)


@pytest.mark.parametrize("columns", [["smiles"], ["smiles", "IC50; nM"], ["id", "a;b", "mol"], ["id", "name; year"]])
def test_other_separators_within_names_are_no_fault(columns):
    check_separator(columns, ",")
    check_separator([column.replace(";", ",") for column in columns], "\t")


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz"])
def test_every_reader_takes_the_encodings_of_spreadsheets(tmp_path, read, encoding, name):
    separator = "\t" if ".tsv" in name else ","
    text = "".join(f"{separator.join(row)}\r\n" for row in [("smiles", "µM"), ("CCO", "1.5"), ("C", "2.5")])
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    content = (mark + text).encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read(tmp_path / name) == ["CCO", "C"]


def test_lines_may_be_utf_16_too(tmp_path):
    (tmp_path / "a.smi").write_text("smiles name\nCCO éthanol\n\nC\n", encoding="utf-16")
    assert read_molecules(str(tmp_path / "a.smi")) == ["CCO", "", "C"]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("smiles,y\nC,1\n".encode("utf-16-le"), "perhaps UTF-16: save it as UTF-8"),
        ("smiles,y\nC,1\n".encode("utf-16-be"), "perhaps UTF-16: save it as UTF-8"),
        (b"PK\x03\x04 sheet", "an Excel workbook: save it as CSV"),
        (gzip.compress(b"smiles,y\nC,1\n", mtime=0), "let its name end in .gz"),
    ],
    ids=["little-endian", "big-endian", "workbook", "gzip"],
)
def test_every_reader_names_what_is_no_text(tmp_path, read, content, message):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(SmilexError, match=message) as caught:
        read(tmp_path / "a.csv")
    assert "a.csv" in str(caught.value)
