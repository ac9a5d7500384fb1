import gzip
import io
import os
import shutil
import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import RDConfig
from safetensors.torch import load_file, save_file

import smilex
from smilex import embed_file
from smilex.data.rows import InvalidMoleculeWarning
from smilex.data.sources import Source, open_source
from smilex.errors import SmilexError
from smilex.shards import EmbeddingJob, Shard, ShardMaker

WIDTH = 32
BAD = ["C1CC", "", "no molecule", "C" * 200, "CN(C)(C)(C)C"]


@pytest.fixture(scope="module")
def molecules():
    """Real molecules; every twentieth row is none."""
    lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text(encoding="ascii").splitlines()
    rows = [line.split()[0] for line in lines if len(line.split()[0]) < 30][:100]
    rows[::20] = BAD
    return rows


@pytest.fixture(scope="module")
def expected(molecules, encoder):
    with pytest.warns(InvalidMoleculeWarning):
        return smilex.embed(molecules, encoder)


@pytest.fixture
def library(molecules, tmp_path):
    path = tmp_path / "library.parquet"
    pd.DataFrame({"id": range(len(molecules)), "smiles": molecules}).to_parquet(path, row_group_size=33)
    return path


def quietly(*arguments, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InvalidMoleculeWarning)
        return embed_file(*arguments, **settings)


def job_of(source, rows, encoder, rows_per_shard, directory):
    return EmbeddingJob(
        source,
        rows,
        encoder,
        "mean",
        canonical=True,
        errors="report",
        rows_per_shard=rows_per_shard,
        directory=directory,
    )


def vectors_in(directory):
    table = pd.read_parquet(directory)
    assert table["row"].tolist() == list(range(len(table)))  # none lost, none twice, and in order
    return table[[f"v{index}" for index in range(WIDTH)]].to_numpy(np.float32)


def shards_in(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.glob("part-*"))}


@pytest.mark.parametrize("rows_per_shard", [7, 33, 100, 10_000])
def test_the_shards_hold_what_embed_returns(library, molecules, expected, encoder, tmp_path, rows_per_shard):
    done = quietly(library, tmp_path / "out", encoder, rows_per_shard=rows_per_shard)
    assert (done.rows, done.width, done.resumed) == (100, WIDTH, 0)
    assert done.shards == len(shards_in(tmp_path / "out")) == -(-100 // rows_per_shard)
    np.testing.assert_allclose(vectors_in(tmp_path / "out"), expected, atol=1e-5)
    assert pd.read_parquet(tmp_path / "out")["smiles"].tolist() == molecules


@pytest.mark.parametrize("name", ["a.smi", "a.smi.gz", "a.csv", "a.tsv.gz", "a.parquet.gz"])
def test_every_kind_of_file_gives_the_same_rows(molecules, expected, encoder, tmp_path, name):
    content = io.BytesIO()
    table = pd.DataFrame({"smiles": molecules})
    if "parquet" in name:
        table.to_parquet(content)
    elif "smi" in name:  # with a header, which is no row
        content.write("\n".join(["smiles", *molecules]).encode())
    else:
        table.to_csv(content, index=False, sep="\t" if "tsv" in name else ",")
    data = content.getvalue()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    quietly(tmp_path / name, tmp_path / "out", encoder, rows_per_shard=30)
    np.testing.assert_allclose(vectors_in(tmp_path / "out"), expected, atol=1e-5)


def test_one_row_and_a_shard_for_each_row(expected, molecules, encoder, tmp_path):
    for rows in (1, 3):
        (tmp_path / "a.smi").write_text("\n".join(molecules[1 : 1 + rows]))
        done = quietly(tmp_path / "a.smi", tmp_path / f"out{rows}", encoder, rows_per_shard=1)
        assert (done.rows, done.shards) == (rows, rows)
        np.testing.assert_allclose(vectors_in(tmp_path / f"out{rows}"), expected[1 : 1 + rows], atol=1e-5)


def test_the_reasons_stand_in_the_shards_and_in_a_report(library, molecules, expected, encoder, tmp_path):
    with pytest.warns(InvalidMoleculeWarning, match="5 of 100 rows hold no molecule") as caught:
        done = embed_file(library, tmp_path / "out", encoder, rows_per_shard=30)
    assert caught[0].filename == __file__
    report = pd.read_csv(tmp_path / "out" / "_invalid.csv", keep_default_na=False)
    assert report["row"].tolist() == np.flatnonzero(np.isnan(expected).all(1)).tolist() == list(range(0, 100, 20))
    assert report["smiles"].tolist() == [molecules[row] for row in report["row"]]
    table = pd.read_parquet(tmp_path / "out")
    assert table["error"].dropna().tolist() == report["error"].tolist()
    assert table["error"].notna().sum() == done.invalid == 5
    assert pq.read_table(tmp_path / "out")["v0"].null_count == 5  # missing, not a number


def test_errors_are_raised_when_asked_for_and_name_the_row_of_the_file(library, encoder, tmp_path):
    source = tmp_path / "b.smi"
    source.write_text("C\n" * 50 + "C1CC\n" + "C\n" * 10)
    for _ in range(2):
        with pytest.raises(SmilexError, match=r"^row 50: 'C1CC' cannot be used: "):
            embed_file(source, tmp_path / "out", encoder, errors="raise", rows_per_shard=10)
    quietly(source, tmp_path / "out", encoder, rows_per_shard=10)
    with pytest.raises(SmilexError, match=r"^row 50: "):  # also where the shard is there already
        embed_file(source, tmp_path / "out", encoder, errors="raise", rows_per_shard=10)


def test_finished_shards_are_kept_and_the_rest_is_made(library, encoder, tmp_path):
    out = tmp_path / "out"
    quietly(library, out, encoder, rows_per_shard=10)
    whole = shards_in(out)
    (out / "part-00003.parquet").unlink()
    (out / "part-00005.parquet").write_bytes(whole["part-00005.parquet"][:500])  # cut off
    (out / "part-00007.parquet").write_bytes(whole["part-00006.parquet"])  # of a like size, but not this shard
    (out / "part-00008.parquet").write_bytes(b"")
    (out / ".0123abcd-part-00003.parquet").write_bytes(b"half")  # what a killed process leaves
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
    done = quietly(library, out, encoder, rows_per_shard=10)
    assert done.resumed == 6
    assert shards_in(out) == whole
    new = {path.name for path in out.glob("part-*") if path.stat().st_mtime_ns != kept.get(path.name)}
    assert new == {f"part-0000{number}.parquet" for number in (3, 5, 7, 8)}
    assert not list(out.glob(".*part*"))
    assert quietly(library, out, encoder, rows_per_shard=10).resumed == 10


def test_a_process_that_is_killed_leaves_whole_shards_and_the_next_one_goes_on(library, encoder, tmp_path):
    out = tmp_path / "out"
    code = f"""
import os, signal, warnings
import smilex, smilex.shards as shards
warnings.simplefilter("ignore")
write, calls = shards.pq.write_table, []
def fatal(table, partial, **settings):
    write(table.slice(0, 5), partial, **settings)
    calls.append(partial)
    if len(calls) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    write(table, partial, **settings)
shards.pq.write_table = fatal
smilex.embed_file({str(library)!r}, {str(out)!r}, {str(encoder)!r}, rows_per_shard=10)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    before = shards_in(out)
    assert len(before) == 3
    assert quietly(library, out, encoder, rows_per_shard=10).resumed == 3
    quietly(library, tmp_path / "at_once", encoder, rows_per_shard=10)
    assert shards_in(out) == shards_in(tmp_path / "at_once")
    assert before.items() <= shards_in(out).items()


def another_input(library):
    table = pd.read_parquet(library)
    table.loc[50, "smiles"] = "CCO"
    table.to_parquet(library)
    return {}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (another_input, "input_digest"),
        (lambda _: {"pooling": "cls"}, "pooling was 'mean' and is 'cls'"),
        (lambda _: {"canonical": False}, "canonical"),
        (lambda _: {"rows_per_shard": 21}, "rows_per_shard was 10 and is 21"),
    ],
)
def test_a_directory_belongs_to_one_job(library, encoder, tmp_path, change, named):
    quietly(library, tmp_path / "out", encoder, rows_per_shard=10)
    before = shards_in(tmp_path / "out")
    with pytest.raises(SmilexError, match=named) as caught:
        quietly(library, tmp_path / "out", encoder, **{"rows_per_shard": 10, **change(library)})
    assert "\n" not in str(caught.value)
    assert shards_in(tmp_path / "out") == before


def test_another_encoder_is_refused_but_a_copy_is_the_same_one(library, encoder, tmp_path):
    quietly(library, tmp_path / "out", encoder)
    shutil.copytree(encoder, tmp_path / "copy")
    assert quietly(library, tmp_path / "out", tmp_path / "copy").resumed == 1
    weights = load_file(tmp_path / "copy" / "model.safetensors")
    save_file(
        {name: value * 1.1 for name, value in weights.items()},
        tmp_path / "copy" / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(SmilexError, match="encoder_digest"):
        quietly(library, tmp_path / "out", tmp_path / "copy")


def test_a_precision_that_this_version_does_not_compute_in_is_refused(library, encoder, tmp_path):
    quietly(library, tmp_path / "out", encoder)
    manifest = tmp_path / "out" / "_manifest.json"
    manifest.write_text(manifest.read_text().replace("fp32", "bf16"))
    with pytest.raises(SmilexError, match="precision was 'bf16' and is 'fp32'"):
        quietly(library, tmp_path / "out", encoder)


def test_a_directory_with_something_else_is_refused(library, encoder, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SmilexError, match="is not empty and holds no run"):
        quietly(library, tmp_path, encoder)


def test_a_directory_that_cannot_be_made(library, encoder):
    with pytest.raises(SmilexError, match=r"cannot write to .*: Not a directory"):
        quietly(library, library / "out", encoder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.smi", "", "is empty: give at least one molecule"),
        ("a.csv", "smiles\n", "is empty"),
        ("a.csv", "structure\nC\n", "no column is known to hold SMILES"),
        ("a.parquet", "PAR1", "no readable Parquet file"),
        ("a.doc", "C\n", "unknown kind of file"),
    ],
)
def test_inputs_that_cannot_be_used(encoder, tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(SmilexError, match=message) as caught:
        quietly(tmp_path / name, tmp_path / "out", encoder)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_empty_parquet_file_and_one_without_smiles(encoder, tmp_path):
    source = tmp_path / "a.parquet"
    pd.DataFrame({"smiles": pd.Series([], dtype=str)}).to_parquet(source)
    with pytest.raises(SmilexError, match="is empty"):
        quietly(source, tmp_path / "out", encoder)
    pd.DataFrame({"structure": ["C"]}).to_parquet(source)
    with pytest.raises(SmilexError, match="no column is known to hold SMILES"):
        quietly(source, tmp_path / "out", encoder)
    assert quietly(source, tmp_path / "out", encoder, smiles_column="structure").rows == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"engine": "spark"}, "engine is 'local' or 'ray', not 'spark'"),
        ({"address": "auto"}, "set engine='ray' too"),
        ({"rows_per_shard": 0}, "rows_per_shard must be at least 1"),
        ({"pooling": "max"}, "pooling is 'mean' or 'cls'"),
        ({"errors": "ignore"}, "errors is 'report' or 'raise'"),
        ({"encoder": "nowhere"}, "no encoder 'nowhere'"),
    ],
)
def test_settings_that_cannot_be_used(library, encoder, tmp_path, wrong, message):
    with pytest.raises(SmilexError, match=message):
        embed_file(library, tmp_path / "out", **{"encoder": encoder, **wrong})
    assert not (tmp_path / "out").exists()


def test_stdin_is_refused(encoder, tmp_path):
    with pytest.raises(SmilexError, match="stdin cannot be read twice"):
        embed_file("-", tmp_path / "out", encoder)


def test_without_ray_the_error_says_how_to_get_it(library, encoder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "smilex.integrations.ray", raising=False)
    with pytest.raises(SmilexError, match=r"pip install 'smilex\[ray\]'"):
        embed_file(library, tmp_path / "out", encoder, engine="ray")
    assert not (tmp_path / "out").exists()


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 10**6), st.integers(1, 10**5), st.data())
def test_every_row_is_in_one_shard(rows, rows_per_shard, data):
    rows_per_shard = max(rows_per_shard, rows // 1000)
    job = job_of(open_source(["C"]), rows, None, rows_per_shard, None)
    shards = job.shards()
    assert shards[0].start == 0
    assert shards[-1].stop == rows
    assert all(a.stop == b.start and b.number == a.number + 1 for a, b in pairwise(shards))
    assert all(0 < shard.stop - shard.start <= rows_per_shard for shard in shards)


@pytest.mark.parametrize("name", ["library.parquet", "library.csv"])
def test_shards_are_made_in_any_order_by_a_maker(library, molecules, encoder, tmp_path, name):
    pd.DataFrame({"smiles": molecules}).to_csv(tmp_path / "library.csv", index=False)
    source = open_source(tmp_path / name)
    job = job_of(source, 100, encoder, 15, tmp_path)
    maker = ShardMaker(job)
    for number in (4, 5, 1, 6, 0, 3, 2):
        maker.make(job.shards()[number])
    table = pd.concat([pd.read_parquet(job.path(shard)) for shard in job.shards()])
    assert table["smiles"].tolist() == molecules
    assert table["row"].tolist() == list(range(100))


def test_an_input_that_became_shorter_is_an_error(encoder, tmp_path):
    source = open_source(["C", "CC"])
    job = job_of(source, 3, encoder, 3, tmp_path)
    with pytest.raises(SmilexError, match="has fewer rows than at the start"):
        ShardMaker(job).make(Shard(0, 0, 3))


def test_no_more_than_a_shard_is_read_ahead(encoder, tmp_path):
    rows = [0]

    def counted():
        for _ in range(100):
            rows[0] += 1
            yield "C"

    source = open_source(["C"] * 100)
    job = job_of(Source(source.name, source.digest, 100, counted), 100, encoder, 10, tmp_path)
    maker = ShardMaker(job)
    for shard in job.shards():
        maker.make(shard)
        assert rows[0] <= shard.stop + 1


def test_paths_are_relative_to_where_the_call_is_made(library, encoder, monkeypatch):
    monkeypatch.chdir(library.parent)
    assert quietly("library.parquet", "out", os.path.relpath(encoder)).directory == library.parent / "out"
