"""Shards made by Ray on this machine: two workers, which are killed while they work."""

import signal
import subprocess
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from rdkit import RDConfig

if find_spec("ray") is None:
    pytest.skip("Ray is not installed: pip install 'smilex[ray]'", allow_module_level=True)

import ray

import smilex
from smilex import embed_file
from smilex.data.rows import InvalidMoleculeWarning
from smilex.data.sources import Source
from smilex.errors import SmilexError
from smilex.integrations.ray import ATTEMPTS, make_on_ray
from smilex.shards import EmbeddingJob, make_here

pytestmark = pytest.mark.slow  # to start Ray and its workers takes minutes where other work keeps the cores busy

ROWS = 1000
PER_SHARD = 25


@pytest.fixture(scope="module")
def running():
    ray.init("local", num_cpus=2, object_store_memory=80 * 2**20, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def molecules():
    lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text(encoding="ascii").splitlines()
    rows = [line.split()[0] for line in lines if len(line.split()[0]) < 30][:ROWS]
    rows[::20] = ["C1CC"] * (ROWS // 20)
    return rows


@pytest.fixture(scope="module")
def library(molecules, tmp_path_factory):
    path = tmp_path_factory.mktemp("library") / "library.parquet"
    pd.DataFrame({"smiles": molecules}).to_parquet(path, row_group_size=300)
    return path


@pytest.fixture(scope="module")
def made_here(library, encoder, tmp_path_factory):
    """The shards of the engine that works alone."""
    directory = tmp_path_factory.mktemp("here") / "out"
    quietly(library, directory, encoder)
    return directory


def quietly(source, directory, encoder, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InvalidMoleculeWarning)
        return embed_file(source, directory, encoder, rows_per_shard=PER_SHARD, **settings)


def assert_same(directory, other):
    table, expected = pd.read_parquet(directory), pd.read_parquet(other)
    assert table["row"].tolist() == list(range(ROWS))  # none lost, none twice
    pd.testing.assert_frame_equal(table, expected, rtol=0, atol=1e-5)
    assert (directory / "_invalid.csv").read_bytes() == (other / "_invalid.csv").read_bytes()
    assert sorted(path.name for path in directory.iterdir()) == sorted(path.name for path in other.iterdir())


def workers():
    """Processes in which shards are made."""
    children = psutil.Process().children(recursive=True)
    found = []
    for child in children:
        try:
            if any("MapWorker" in part for part in child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def test_both_engines_write_the_same(running, molecules, library, encoder, made_here, tmp_path):
    done = quietly(library, tmp_path / "out", encoder, engine="ray")
    assert (done.rows, done.shards, done.resumed, done.invalid) == (ROWS, ROWS // PER_SHARD, 0, ROWS // 20)
    assert_same(tmp_path / "out", made_here)
    with pytest.warns(InvalidMoleculeWarning):
        expected = smilex.embed(molecules, encoder)
    table = pd.read_parquet(tmp_path / "out")
    np.testing.assert_allclose(table.filter(regex=r"^v\d+$").to_numpy(np.float32), expected, atol=1e-5)
    assert table["smiles"].tolist() == molecules


def test_no_row_is_lost_or_doubled_when_workers_are_killed(running, library, encoder, made_here, tmp_path, monkeypatch):
    killed = []

    def killing(job, shards, address=None):
        for number, shard in enumerate(make_on_ray(job, shards, address)):
            if number in (0, 6):  # once both, once one of the new ones
                for worker in workers()[: 2 if number == 0 else 1]:
                    worker.kill()
                    killed.append((worker.pid, len(job.missing())))
            yield shard

    monkeypatch.setattr("smilex.integrations.ray.make_on_ray", killing)
    done = quietly(library, tmp_path / "out", encoder, engine="ray")
    assert done.resumed == 0
    assert len({pid for pid, _ in killed}) == len(killed) >= 2
    assert all(missing > 0 for _, missing in killed)  # there was work left each time
    assert_same(tmp_path / "out", made_here)


def test_finished_shards_of_the_other_engine_are_kept(running, library, encoder, made_here, tmp_path, monkeypatch):
    def some(job, shards):
        yield from make_here(job, shards[:30:2])
        raise KeyboardInterrupt

    monkeypatch.setattr("smilex.embedding_files.make_here", some)
    with pytest.raises(KeyboardInterrupt):
        quietly(library, tmp_path / "out", encoder)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    assert len(before) == 15
    assert quietly(library, tmp_path / "out", encoder, engine="ray").resumed == 15
    assert_same(tmp_path / "out", made_here)
    assert all(path.stat().st_mtime_ns == written for path, written in before.items())


def test_one_row_and_more_workers_than_shards(running, encoder, tmp_path):
    (tmp_path / "one.smi").write_text("CCO\n")
    done = quietly(tmp_path / "one.smi", tmp_path / "out", encoder, engine="ray")
    assert (done.rows, done.shards) == (1, 1)
    table = pd.read_parquet(tmp_path / "out").filter(regex=r"^v\d+$")
    np.testing.assert_allclose(table.to_numpy(np.float32), smilex.embed(["CCO"], encoder), atol=1e-5)


def test_an_error_of_a_worker_is_one_line(running, library, encoder, tmp_path):
    with pytest.raises(SmilexError, match=r"^row \d+: 'C1CC' cannot be used: ") as caught:
        quietly(library, tmp_path / "out", encoder, engine="ray", errors="raise")
    assert "\n" not in str(caught.value)


def test_a_shard_that_kills_every_worker_ends_the_job(running, encoder, tmp_path):
    def rows():
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)
        yield "C"

    job = EmbeddingJob(
        Source("a trap", "0", 1, rows),
        1,
        encoder,
        "mean",
        canonical=True,
        errors="report",
        rows_per_shard=1,
        directory=tmp_path,
    )
    with pytest.raises(SmilexError, match=rf"^{ATTEMPTS} workers died at rows 0 to 0"):
        list(make_on_ray(job, job.shards()))


def test_a_second_connection_is_refused(running, library, encoder, tmp_path):
    with pytest.raises(SmilexError, match="connected to a Ray already"):
        quietly(library, tmp_path / "out", encoder, engine="ray", address="auto")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
        ("ray://127.0.0.1:1", "no Ray cluster answers"),
        ("no-such-host.invalid:6379", "no Ray cluster answers"),
        ("cluster", "is HOST:PORT or 'auto', not 'cluster'"),
        ("127.0.0.1:99999", "no Ray cluster answers"),
    ],
)
def test_a_cluster_that_is_not_reached(library, encoder, tmp_path, monkeypatch, address, message):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(SmilexError, match=message) as caught:
        quietly(library, tmp_path / "out", encoder, engine="ray", address=address)
    assert "\n" not in str(caught.value)


def test_a_driver_that_is_killed_takes_its_workers_along_and_the_next_one_goes_on(
    library, encoder, made_here, tmp_path
):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "smilex", "embed", str(library), f"{out}/", "--encoder", str(encoder)]
    command += ["--engine", "ray", "--rows-per-shard", str(PER_SHARD)]
    driver = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while driver.poll() is None and len(list(out.glob("part-*"))) < 2:
        time.sleep(0.02)
    children = psutil.Process(driver.pid).children(recursive=True)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    _, alive = psutil.wait_procs(children, timeout=120)
    assert not alive
    assert 2 <= len(list(out.glob("part-*"))) < ROWS // PER_SHARD
    kept = len(list(out.glob("part-*")))
    assert quietly(library, out, encoder).resumed == kept
    assert_same(out, made_here)
