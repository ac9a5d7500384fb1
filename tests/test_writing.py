import os
import resource
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from smilex.errors import SmilexError
from smilex.files import write_table, write_vectors
from smilex.report.plots import plot_loss
from smilex.runs import write_json
from smilex.writing import whole_file, write_text

NUMBERS = np.random.default_rng(0).random((500, 8), dtype=np.float32)
TABLE = pd.DataFrame(NUMBERS)

WRITERS = {
    "a.txt": lambda path: write_text(path, "C" * 5000),
    "a.json": lambda path: write_json(path, {"smiles": "C" * 5000}),
    "table.csv": lambda path: write_table(TABLE, path),
    "table.parquet": lambda path: write_table(TABLE.set_axis(list("abcdefgh"), axis="columns"), path),
    "a.npy": lambda path: write_vectors(["C"] * 500, NUMBERS, path),
    "a.npz": lambda path: write_vectors(["C"] * 500, NUMBERS, path),
    "vectors.csv": lambda path: write_vectors(["C"] * 500, NUMBERS, path),
    "loss.png": lambda path: plot_loss([{"step": 1, "loss": 3.2}, {"step": 2, "loss": 2.9}], path),
    "loss.svg": lambda path: plot_loss([{"step": 1, "loss": 3.2}, {"step": 2, "loss": 2.9}], path),
}
"""Everything that writes one file, by the name of a file it may write."""

every_writer = pytest.mark.parametrize(("name", "write"), WRITERS.items(), ids=list(WRITERS))


@contextmanager
def no_room():
    """Let the system refuse every file of more than 1000 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@every_writer
def test_an_old_file_is_replaced_and_nothing_else_is_left(tmp_path, name, write):
    (tmp_path / name).write_bytes(b"old")
    write(tmp_path / name)
    assert len((tmp_path / name).read_bytes()) > 1000
    assert [path.name for path in tmp_path.iterdir()] == [name]


@every_writer
def test_where_there_is_no_room_the_old_file_stays(tmp_path, name, write):
    (tmp_path / name).write_bytes(b"old")
    with no_room(), pytest.raises(SmilexError, match=f"cannot write .*/{name}: ") as caught:
        write(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert (tmp_path / name).read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == [name]


@every_writer
@pytest.mark.parametrize("place", ["none", "file"])
def test_a_folder_that_is_none_is_named(tmp_path, name, write, place):
    (tmp_path / "file").touch()
    with pytest.raises(SmilexError, match=f"cannot write .*/{place}/{name}: "):
        write(tmp_path / place / name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@every_writer
def test_a_directory_is_not_replaced(tmp_path, name, write):
    (tmp_path / name).mkdir()
    with pytest.raises(SmilexError, match=f"cannot write .*/{name}: Is a directory"):
        write(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@every_writer
def test_permissions_are_those_of_any_new_file(tmp_path, name, write):
    (tmp_path / "other").touch()
    write(tmp_path / name)
    assert (tmp_path / name).stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SmilexError])
def test_other_errors_pass_and_leave_no_half_file(tmp_path, error):
    def fail():
        with whole_file(tmp_path / "a.txt") as partial:
            partial.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_the_content_reaches_the_disk_before_the_name(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (calls.append("content"), fsync(descriptor)))
    monkeypatch.setattr(Path, "replace", lambda self, to: (calls.append("name"), replace(self, to)))
    write_text(tmp_path / "a.txt", "CCO")
    assert calls == ["content", "name"]


def test_several_may_write_one_file_at_once(tmp_path):
    path = tmp_path / "a.txt"
    with whole_file(path) as first, whole_file(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"  # the last to finish
    assert list(tmp_path.iterdir()) == [path]
