import gzip
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rdkit import Chem, RDConfig

from smilex.data.readers import Unreadable, read_lines, read_parquet, read_sdf, read_table
from smilex.errors import SmilexError

SDF = Path(RDConfig.RDDataDir) / "NCI" / "first_200.props.sdf"


def lines(content):
    return list(read_lines(io.BytesIO(content)))


def test_lines_take_the_first_field():
    assert lines(b"CCO ethanol 1\nO\twater\n  C  \n") == ["CCO", "O", "C"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_end_as_on_any_system(end):
    assert lines(end.join([b"CCO 1", b"O 2", b"C"])) == ["CCO", "O", "C"]


def test_blank_lines_keep_the_count_of_rows():
    assert lines(b"CCO\n\n   \nO\n") == ["CCO", "", "", "O"]


@pytest.mark.parametrize("header", [b"smiles", b"SMILES\tname", b"canonical_smiles id", b"\n\nSmiles"])
def test_a_header_is_a_row_that_is_reported(header):
    rows = lines(header + b"\nCCO\n")
    assert rows[-2].reason == "header line"
    assert rows[-1] == "CCO"


def test_a_header_stands_first_or_is_none():
    assert lines(b"CCO\nsmiles\n") == ["CCO", "smiles"]


def test_byte_order_mark_is_no_part_of_the_first_molecule():
    assert lines("CCO\n".encode("utf-8-sig")) == ["CCO"]


def test_bytes_that_are_not_utf8_do_not_stop_the_reader():
    assert lines(b"CCO\nC\xff\nO\n") == ["CCO", "C\udcff", "O"]


def test_table_reads_quotes_ragged_rows_and_line_breaks_in_fields():
    content = b'name,Smiles,y\n"a, b","CCO",1\n"two\nlines",O,2\nshort\n'
    assert list(read_table(io.BytesIO(content))) == ["CCO", "O", ""]


def test_table_takes_the_column_asked_for():
    assert list(read_table(io.BytesIO(b"smiles,product\nCCO,O\n"), "product")) == ["O"]


def test_unclosed_quote_is_an_error_with_the_line():
    content = b'smiles,y\n"CCO,1\n' + b"C,2\n" * 100_000
    with pytest.raises(SmilexError, match=r"line \d+: .*quotation mark that is never closed"):
        list(read_table(io.BytesIO(content)))


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary()])
def test_parquet_reads_any_kind_of_string_column(tmp_path, kind, compress):
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"y": [1, 2, 3], "SMILES": pa.array(["CCO", None, "O"], type=kind)}), path, row_group_size=2
    )
    if compress:
        path.write_bytes(gzip.compress(path.read_bytes()))
    with gzip.open(path) if compress else path.open("rb") as file:
        assert list(read_parquet(file)) == ["CCO", Unreadable("", "not a string", "NoneType"), "O"]


def test_what_is_no_parquet_is_an_error(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"smiles\nCCO\n")
    with (tmp_path / "a.parquet").open("rb") as file, pytest.raises(SmilexError, match="no readable Parquet file: "):
        list(read_parquet(file))


def test_sdf_reads_the_molecules_that_rdkit_reads():
    expected = [Chem.MolToSmiles(mol) for mol in Chem.SDMolSupplier(str(SDF)) if mol is not None]
    with SDF.open("rb") as file:
        rows = list(read_sdf(file))
    assert [row for row in rows if isinstance(row, str)] == expected
    assert len(expected) > 150


def test_unreadable_sdf_record_does_not_stop_the_reader(capfd):
    records = SDF.read_text().split("$$$$\n")[:3]
    records[1] = records[1].replace("V2000", "V9000")
    with io.BytesIO("".join(f"{record}$$$$\n" for record in records).encode()) as file:
        kinds = [type(row) for row in read_sdf(file)]
    assert kinds == [str, Unreadable, str]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("read", [read_lines, read_sdf])
def test_files_without_columns_take_no_column_name(read):
    with pytest.raises(SmilexError, match=r"smiles_column: .* leave it out"):
        list(read(io.BytesIO(b"CCO\n"), "smiles"))
