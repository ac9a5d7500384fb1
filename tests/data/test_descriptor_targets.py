import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rdkit import RDConfig
from scipy.stats import norm, rankdata
from sklearn.preprocessing import QuantileTransformer

from smilex.data import descriptor_targets as module
from smilex.data.corpus import load_corpus
from smilex.data.descriptor_targets import load_descriptor_targets, normal_scores
from smilex.data.descriptors import DESCRIPTOR_NAMES, compute_descriptors
from smilex.errors import SmilexError

LINES = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()
SMILES = [line.split()[0] for line in LINES[:90]]


@pytest.fixture
def corpus(tmp_path):
    return load_corpus(SMILES, cache_dir=tmp_path / "cache", progress=False)


@pytest.fixture
def small_chunks(monkeypatch):
    """Send even a small corpus to worker processes."""
    monkeypatch.setattr(module, "CHUNK", 10)
    monkeypatch.setattr(module, "SMALL", 20)


def array(targets):
    return targets.with_format("numpy")["targets"][:]


def plain(values):
    """Φ⁻¹ of the mean rank, column by column, in float64."""
    expected = np.full(values.shape, np.nan)
    for place, column in enumerate(values.T):
        known = ~np.isnan(column)
        if len(set(column[known])) > 1:
            expected[known, place] = norm.ppf((rankdata(column[known]) - 0.5) / known.sum())
    return expected


def test_targets_are_the_normal_scores_of_the_descriptors(corpus):
    values = compute_descriptors(corpus.dataset["smiles"][:])
    targets = load_descriptor_targets(corpus, progress=False)
    assert targets.features["targets"].feature.dtype == "float16"
    assert targets.features["targets"].length == len(DESCRIPTOR_NAMES)
    np.testing.assert_allclose(array(targets), plain(values), rtol=1e-3, atol=1e-4)
    unknown = np.isnan(values)
    assert unknown.any()
    assert not unknown.all()
    constant = [len(np.unique(column[~np.isnan(column)])) < 2 for column in values.T]
    assert any(constant)
    np.testing.assert_array_equal(np.isnan(array(targets)), unknown | constant)


def test_order_and_values_are_the_same_whatever_the_number_of_workers(tmp_path, small_chunks):
    found = []
    for workers in (1, 2):
        corpus = load_corpus(SMILES, cache_dir=tmp_path / str(workers), progress=False)
        found.append(array(load_descriptor_targets(corpus, num_workers=workers, progress=False)))
    np.testing.assert_array_equal(*found)


def test_a_large_corpus_is_ranked_among_some_of_its_molecules(corpus, monkeypatch):
    whole = array(load_descriptor_targets(corpus, progress=False))
    monkeypatch.setattr(module, "REFERENCE", 60)
    sampled = array(load_descriptor_targets(corpus, progress=False))
    place = DESCRIPTOR_NAMES.index("MolWt")
    assert len(np.unique(sampled[:, place])) > 60  # those between two of the sample are between their scores
    assert sampled[:, place].max() == pytest.approx(norm.ppf(1 - 0.5 / 60), abs=2e-3)  # and none is beyond
    assert np.abs(sampled[:, place] - whole[:, place]).max() < 0.5
    assert np.corrcoef(sampled[:, place], whole[:, place])[0, 1] > 0.98
    np.testing.assert_array_equal(sampled[:, place].argsort()[30:60], whole[:, place].argsort()[30:60])


@given(arrays(np.float32, st.integers(1, 40), elements=st.sampled_from([np.nan, -2.0, 0.0, 0.5, 1e30])))
def test_normal_scores_equal_those_of_scipy(values):
    points, scores = normal_scores(values)
    np.testing.assert_allclose(np.interp(values, points, scores), plain(values[:, None])[:, 0], rtol=1e-12, atol=1e-12)


def test_normal_scores_are_those_of_scikit_learn_where_all_values_differ():
    values = np.random.default_rng(0).lognormal(size=(2001, 1))
    transformer = QuantileTransformer(output_distribution="normal", n_quantiles=2001, subsample=None)
    expected = transformer.fit_transform(values)[:, 0]
    found = np.interp(values[:, 0], *normal_scores(values[:, 0]))
    inner = np.abs(expected) < 2
    np.testing.assert_allclose(found[inner], expected[inner], atol=0.01)
    assert found.mean() == pytest.approx(0, abs=1e-3)
    assert found.std() == pytest.approx(1, abs=0.01)


def test_a_rare_group_counts_little():
    has_group = np.array([0.0] * 999 + [1.0])
    scores = np.interp(has_group, *normal_scores(has_group))
    assert scores[0] == pytest.approx(0, abs=0.01)
    assert scores[-1] == pytest.approx(norm.ppf(0.9995))
    assert scores.var() < 0.02


def test_second_call_takes_the_cache(corpus, monkeypatch):
    first = load_descriptor_targets(corpus, progress=False)
    monkeypatch.setattr(module, "compute_descriptors", None)
    second = load_descriptor_targets(corpus, progress=False)
    assert second.cache_files == first.cache_files  # memory-mapped, not a copy
    folder = Path(first.cache_files[0]["filename"]).parent
    assert folder.parent == corpus.path
    assert [path.name for path in folder.iterdir()] == ["targets.arrow"]


@pytest.mark.parametrize("what", ["version of RDKit", "list of descriptors", "VERSION"])
def test_what_the_values_depend_on_makes_another_entry(corpus, monkeypatch, what):
    before = load_descriptor_targets(corpus, progress=False).cache_files
    if what == "version of RDKit":
        monkeypatch.setattr(module.rdkit, "__version__", "next")
    elif what == "VERSION":
        monkeypatch.setattr(module, "VERSION", "next")
    else:
        monkeypatch.setattr(module, "DESCRIPTOR_NAMES", DESCRIPTOR_NAMES[:-1])
        monkeypatch.setattr(module, "compute_descriptors", lambda smiles: compute_descriptors(smiles)[:, :-1])
    assert load_descriptor_targets(corpus, progress=False).cache_files != before


def test_progress_is_shown_on_stderr_only(corpus, capfd):
    load_descriptor_targets(corpus, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "computing descriptors" in err


@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt])
def test_an_interrupted_build_leaves_nothing(corpus, monkeypatch, fault):
    def fail(*_args):
        raise fault

    before = sorted(corpus.path.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(module, "normal_scores", fail)
        with pytest.raises(fault):
            load_descriptor_targets(corpus, progress=False)
    assert [path for path in sorted(corpus.path.iterdir()) if path.suffix != ".lock"] == before
    assert len(load_descriptor_targets(corpus, progress=False)) == len(corpus.dataset)


def test_damaged_targets_say_what_to_delete(corpus):
    path = Path(load_descriptor_targets(corpus, progress=False).cache_files[0]["filename"])
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"x" * len(whole)):
        path.write_bytes(damaged)
        with pytest.raises(SmilexError, match=f"{path.parent} in the cache is damaged .*: delete it and try again"):
            load_descriptor_targets(corpus, progress=False)


SCRIPT = """
from smilex.data import corpus, descriptor_targets
descriptor_targets.CHUNK, descriptor_targets.SMALL = 10, 20
found = corpus.load_corpus({smiles!r}, cache_dir={cache!r}, progress=False)
print(len(descriptor_targets.load_descriptor_targets(found, num_workers=2, progress=False)))
"""


@pytest.fixture
def start(tmp_path):
    """Start a script that has no `if __name__ == "__main__"`, as users write them."""
    running = []

    def start(smiles):
        script = SCRIPT.format(smiles=smiles, cache=str(tmp_path / "cache"))
        running.append(
            subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_two_processes_at_once(corpus, start):
    started = [start(SMILES) for _ in range(2)]
    outputs = [process.communicate(timeout=100) for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert [int(out) for out, _ in outputs] == [len(corpus.dataset)] * 2
    assert len([path for path in corpus.path.iterdir() if path.is_dir()]) == 1


def test_kill_in_the_middle_leaves_nothing_that_is_taken_for_whole(start, tmp_path):
    smiles = [line.split()[0] for line in LINES[:600]]
    corpus = load_corpus(smiles, cache_dir=tmp_path / "cache", progress=False)
    process = start(smiles)
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size > 10_000 for path in corpus.path.glob("*.partial/raw.float32")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert [path.suffix for path in corpus.path.iterdir() if path.is_dir()] == [".partial"]
    targets = load_descriptor_targets(corpus, progress=False)
    np.testing.assert_allclose(
        array(targets), plain(compute_descriptors(corpus.dataset["smiles"][:])), rtol=1e-3, atol=1e-4
    )
    assert list(corpus.path.glob("*.partial")) == []
