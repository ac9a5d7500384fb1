import gzip

import pandas as pd
import pytest

from smilex.data.tables import read_table
from smilex.errors import SmilexError

TABLE = pd.DataFrame({"smiles": ["CCO", "NA", "[Na+].[Cl-]"], "y": [1.5, None, -2.0]})


def write(folder, name, table=TABLE):
    path = folder / name
    stem = name.removesuffix(".gz")
    plain = folder / f"plain-{stem}"
    if stem.endswith(".parquet"):
        table.to_parquet(plain)
    else:
        table.to_csv(plain, index=False, sep="\t" if stem.endswith(".tsv") else ",")
    content = plain.read_bytes()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", [f"a.{kind}{gz}" for kind in ("csv", "tsv", "parquet", "CSV") for gz in ("", ".gz")])
def test_every_format_gives_the_same_rows(tmp_path, name):
    table = read_table(write(tmp_path, name))
    pd.testing.assert_frame_equal(table, TABLE, check_dtype=False)


@pytest.mark.parametrize("cell", ["", "NA", "N/A", "nan", "NaN", "null", "None"])
def test_a_smiles_column_keeps_its_strings_and_other_columns_have_missing_cells(tmp_path, cell):
    path = tmp_path / "a.csv"
    path.write_text(f"SMILES,y\nC,1\n{cell},{cell}\n")
    table = read_table(path)
    assert table["SMILES"].tolist() == ["C", cell]
    assert table["y"].isna().tolist() == [False, True]


def test_spaces_quotes_and_byte_order_mark(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfsmiles,y\n"CC O",1\nCC ,2\n')
    table = read_table(path)
    assert table.columns.tolist() == ["smiles", "y"]
    assert table["smiles"].tolist() == ["CC O", "CC "]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "is empty; give a table with a smiles column"),
        ("a.csv", b" \n\n", "is empty"),
        ("a.csv.gz", b"", "is empty"),
        # mtime: without it the bytes, and with them the name of the test, would hold the time of day.
        ("a.csv.gz", gzip.compress(b"", mtime=0), "is empty"),
        ("a.parquet", b"", "is empty"),
        ("a.csv.gz", b"smiles,y\nC,1\n", "cannot read"),
        ("a.csv.gz", gzip.compress(b"smiles,y\nC,1\n" * 1000, mtime=0)[:-20], "cannot read"),
        ("a.csv.gz", gzip.compress(b"smiles,y\nC,1\n", mtime=0)[:10] + b"\xff" * 40, "cannot read"),
        ("a.csv", b"smiles,y\nC,1\nC,1,2\n", "is no proper csv table: .*Expected 2 fields"),
        ("a.csv", b"smiles,y\nC,1,5\nCC,2,6\n", "has rows with more cells than its header"),
        ("a.csv", b"smiles,y\nC,1,\nCC,2,\n", "has rows with more cells than its header"),
        ("a.csv", b"smiles,y\nC,\xff\xfe\n", "is no proper csv table: .*utf-8"),
        ("a.csv", "smiles,y in µM\nC,1\n".encode("cp1252"), r"byte 0xb5 .* save it as UTF-8 \(in Excel: CSV UTF-8\)"),
        ("a.parquet", b"smiles,y\nC,1\n", "is no proper parquet table"),
        ("a.xlsx", b"PK", r"save the table as .csv, .tsv or .parquet"),
        ("a", b"smiles,y\nC,1\n", r"save the table as .csv, .tsv or .parquet"),
    ],
)
def test_files_that_are_no_tables(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SmilexError, match=message) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(SmilexError, match=r"no file .*none\.csv"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(SmilexError, match=r"cannot read .*folder\.csv"):
        read_table(tmp_path / "folder.csv")
