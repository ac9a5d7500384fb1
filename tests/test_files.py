import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smilex import files


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), max_size=20), min_size=1))
def test_every_line_of_stdin_is_a_row(lines):
    content = "".join(f"{line}\n" for line in lines).encode()
    named = lines[0].lower() in {"smiles", "smi", "mol"}  # a header
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert files.read_molecules("-") == (lines[1:] if named else lines)


def test_bytes_that_are_not_utf_8_become_escapes(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(b"smiles\nC\xffC\nCC\n")
    assert files.read_molecules(str(path)) == [r"C\xffC", "CC"]


def test_a_table_keeps_what_a_row_holds(tmp_path):
    table = pd.DataFrame({"smiles": ["C", 'a "b",\nc', "é"], "logS": np.float32([0.25, np.nan, 2.0])})
    for name in ("out.csv", "out.parquet"):
        files.write_table(table, tmp_path / name)
    read = pd.read_csv(tmp_path / "out.csv", dtype={"logS": np.float32})
    pd.testing.assert_frame_equal(read, table)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out.parquet"), table)
