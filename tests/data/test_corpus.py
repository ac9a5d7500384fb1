import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rdkit import Chem, RDConfig, rdBase

from smilex.data import cache as cache_module
from smilex.data import corpus as corpus_module
from smilex.data.corpus import load_corpus
from smilex.errors import SmilexError
from smilex.tokenization import SmilesTokenizer

NCI = Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi"
SMILES = [line.split()[0] for line in NCI.read_text().splitlines()]


@pytest.fixture
def load(tmp_path):
    def load(source, **settings):
        return load_corpus(source, **({"cache_dir": tmp_path / "cache", "progress": False} | settings))

    return load


@pytest.fixture
def small_chunks(monkeypatch):
    """Send even a small source to worker processes."""
    monkeypatch.setattr(corpus_module, "CHUNK", 40)
    monkeypatch.setattr(corpus_module, "SMALL", 50)


def test_nci5k_against_plain_rdkit(load):
    corpus = load("nci5k")
    with rdBase.BlockLogs():
        mols = [mol for mol in map(Chem.MolFromSmiles, SMILES) if mol is not None]
    whole = [mol for mol in mols if len(Chem.GetMolFrags(mol)) == 1]
    expected = {Chem.MolToSmiles(mol) for mol in whole}
    kept = corpus.dataset["smiles"][:]
    assert len(kept) == len(set(kept)) == corpus.report.kept
    assert expected <= set(kept)
    assert corpus.report.read == len(SMILES) == 4999
    assert corpus.report.removed["invalid SMILES"] == len(SMILES) - len(mols)
    assert corpus.report.read == corpus.report.kept + sum(corpus.report.removed.values())


def test_columns(load):
    corpus = load(["C[C@H](N)C(=O)O", "OCC"])
    assert {name: str(column.dtype) for name, column in corpus.dataset.features.items() if name != "input_ids"} == {
        "smiles": "string",
        "length": "int32",
    }
    assert corpus.dataset.features["input_ids"].feature.dtype == "uint16"
    assert corpus.dataset["input_ids"][:] == SmilesTokenizer()(["C[C@H](N)C(=O)O", "CCO"])["input_ids"]
    assert corpus.dataset["length"][:] == [len(ids) for ids in corpus.dataset["input_ids"]]
    assert corpus.dataset.cache_files[0]["filename"] == str(corpus.path / "data.arrow")  # memory-mapped, not a copy


def test_order_and_report_are_the_same_whatever_the_number_of_workers(load, tmp_path, small_chunks):
    rows = [*SMILES[:300], "C1CC", *SMILES[100:200]]
    one = load(rows, num_workers=1, cache_dir=tmp_path / "1")
    two = load(rows, num_workers=2, cache_dir=tmp_path / "2")
    assert one.dataset["smiles"][:] == two.dataset["smiles"][:]
    assert one.report == two.report
    assert one.report.removed["duplicate"] >= 100
    assert one.report.examples["duplicate"][0].row < 400
    assert one.fingerprint == two.fingerprint


def test_duplicates_are_found_across_chunks_and_spellings(load, small_chunks):
    corpus = load(["OCC", *["C" * n for n in range(3, 60)], "C(O)C", "CCO.[Na+]"], num_workers=1)
    assert corpus.dataset["smiles"][0] == "CCO"
    assert corpus.report.removed == {"duplicate": 2}
    assert [example.row for example in corpus.report.examples["duplicate"]] == [58, 59]
    assert corpus.report.examples["duplicate"][0].detail == "same molecule as an earlier row: CCO"


def test_second_call_takes_the_cache_and_gives_the_same_report(load, monkeypatch):
    first = load(["OCC", "CCO", "C1CC"])
    monkeypatch.setattr(corpus_module, "clean_chunk", None)
    second = load(s for s in ["OCC", "CCO", "C1CC"])
    assert second.report == first.report
    assert second.path == first.path
    assert second.dataset[:] == first.dataset[:]


@pytest.mark.parametrize(
    ("source", "settings"),
    [
        (["CCO", "CC", "O"], {}),
        (["CC", "CCO"], {}),
        (["CCO", "CC"], {"neutralize": True}),
        (["CCO", "CC"], {"max_length": 100}),
    ],
)
def test_other_content_or_settings_are_another_entry(load, source, settings):
    assert load(["CCO", "CC"]).fingerprint != load(source, **settings).fingerprint


@pytest.mark.parametrize("version", [("rdkit", "__version__"), (None, "CACHE_VERSION")])
def test_other_versions_are_another_entry(load, monkeypatch, version):
    before = load(["CCO"]).fingerprint
    owner, name = version
    monkeypatch.setattr(corpus_module.rdkit if owner else corpus_module, name, "next")
    assert load(["CCO"]).fingerprint != before


def test_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("SMILEX_CACHE", str(tmp_path / "elsewhere"))
    assert load_corpus(["CCO"], progress=False).path.is_relative_to(tmp_path / "elsewhere")


def test_progress_is_shown_on_stderr_only(load, capfd):
    load(["CCO"], progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "cleaning molecules" in err
    load(["CCC"], progress=False)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "the list is empty: a corpus needs at least one molecule"),
        (iter([]), "the iterable is empty: a corpus needs at least one molecule"),
        (
            ["", "C1CC", None],
            r"none of 3 rows is a molecule that can be used, for example row 0: '' \(empty, .*row 1: 'C1CC' \(",
        ),
        (
            ["C" * 10_000],
            r"none of 1 rows .* row 0: 'C+…C+ \[10000 characters\]' \(too long, 10000 characters, the limit is 5000\)",
        ),
        (
            ["C\x00", "é"],
            r"row 0: 'C\\x00' \(invalid SMILES, control character .*\); row 1: 'é' \(invalid SMILES, non-ASCII",
        ),
        (["CCCCCCC"], r"\(too long, 9 tokens with \[CLS\] and \[SEP\], the limit is 8\)"),
    ],
)
def test_corpus_without_molecules(load, source, message):
    with pytest.raises(SmilexError, match=message) as caught:
        load(source, max_length=8 if source == ["CCCCCCC"] else 512)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.smi", "a.csv", "a.smi.gz", "a.sdf"])
def test_empty_file(load, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"")
    with pytest.raises(SmilexError, match=f"{name} is empty: a corpus needs at least one molecule"):
        load(path)


def test_file_with_every_fault_is_read_to_its_end(load, tmp_path):
    path = tmp_path / "a.smi"
    path.write_bytes(b"smiles\nCCO\n\nC\xff\nC\x01\nC1CC\n" + b"C" * 20_000 + b"\nOCC\nN ammonia\r\n")
    corpus = load(path)
    assert corpus.dataset["smiles"][:] == ["CCO", "N"]
    reasons = ["header line", "empty", "not UTF-8", "invalid SMILES", "too long", "duplicate"]
    assert corpus.report.removed == dict.fromkeys(reasons, 1) | {"invalid SMILES": 2}
    assert [corpus.report.examples[reason][0].row for reason in reasons] == [0, 2, 3, 4, 6, 7]


def test_csv_without_a_smiles_column(load, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("name,drug\nethanol,CCO\n")
    message = r"a.csv: no column is known to hold SMILES: name one with smiles_column; the columns are: 'name', 'drug'$"
    with pytest.raises(SmilexError, match=message):
        load(path)
    assert load(path, smiles_column="drug").dataset["smiles"][:] == ["CCO"]


def test_number_of_workers_that_is_none(load):
    with pytest.raises(SmilexError, match="num_workers is at least 1, not 0"):
        load(["CCO"], num_workers=0)


def test_a_cache_that_is_read_only_serves_what_it_has(load, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    load(["CCO"])
    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(cache_module, "FileLock", refuse)
    assert load(["CCO"]).dataset["smiles"][:] == ["CCO"]


def test_cache_that_cannot_be_written(load, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        SmilexError, match=r"cannot write the cache in .*file.*: name another place with cache_dir or SMILEX_CACHE"
    ):
        load(["CCO"], cache_dir=tmp_path / "file")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_read_only_cache(load, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o500)
    with pytest.raises(SmilexError, match=r"cannot write the cache in .*Permission denied"):
        load(["CCO"])


def test_permission_denied_by_the_system(load, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(SmilexError, match=r"cannot write the cache in .* \(Permission denied\): name another place"):
        load(["CCO"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a device that is always full")
def test_no_space_left(load, monkeypatch, tmp_path):
    real = corpus_module.pa.OSFile
    monkeypatch.setattr(corpus_module.pa, "OSFile", lambda _path, mode: real("/dev/full", mode))
    with pytest.raises(
        SmilexError, match=r"no space left for the cache in .*: free some, or name another place with cache_dir"
    ):
        load(["CCO"])
    assert list((tmp_path / "cache" / "corpora").glob("*.partial")) == []
    monkeypatch.undo()
    assert len(load(["CCO"]).dataset) == 1


def test_damaged_entry_says_what_to_delete(load):
    path = load(["CCO", "CC"]).path
    whole = (path / "data.arrow").read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"x" * len(whole)):
        (path / "data.arrow").write_bytes(damaged)
        with pytest.raises(SmilexError, match=f"{path} in the cache is damaged .*: delete it and try again"):
            load(["CCO", "CC"])


def test_failure_in_the_middle_leaves_nothing(load, tmp_path, monkeypatch):
    def fail(*_args):
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(corpus_module, "_drop_duplicates", fail)
    with pytest.raises(RuntimeError, match="a fault of our own"):
        load(["CCO"])
    assert [path.suffix for path in (tmp_path / "cache" / "corpora").iterdir()] in ([], [".lock"])


def test_worker_that_dies_is_an_error_with_a_way_out(load, small_chunks, monkeypatch):
    monkeypatch.setattr(corpus_module, "clean_chunk", lambda *_: os._exit(1))
    with pytest.raises(
        SmilexError, match="a worker process died, as when memory runs out: try again with num_workers=1"
    ):
        load(SMILES[:200], num_workers=2)


SCRIPT = """
from smilex.data import corpus
corpus.CHUNK, corpus.SMALL = 40, 50
found = corpus.load_corpus({source!r}, cache_dir={cache!r}, num_workers=2, progress=False)
print(found.report.kept, found.path)
"""


@pytest.fixture
def start(tmp_path):
    """Start a script that has no `if __name__ == "__main__"`, as users write them."""
    running = []

    def start(rows):
        source = tmp_path / "source.smi"
        source.write_text("\n".join(rows))
        script = tmp_path / "script.py"
        script.write_text(SCRIPT.format(source=str(source), cache=str(tmp_path / "cache")))
        running.append(
            subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return running[-1], source

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_two_processes_build_the_same_corpus_at_once(start, load):
    rows = SMILES[:400]
    started = [start(rows)[0] for _ in range(2)]
    outputs = [process.communicate(timeout=100) for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert outputs[0] == outputs[1]
    assert outputs[0][0].startswith(f"{load(rows).report.kept} ")


def test_kill_in_the_middle_leaves_nothing_that_is_taken_for_whole(start, load, tmp_path):
    process, source = start(SMILES[:2000])
    folder = tmp_path / "cache" / "corpora"
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size > 0 for path in folder.glob("*.partial/data.arrow")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    workers = children.read_text().split() if children.exists() else []
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(list(folder.glob("*.partial"))) == 1
    assert [path for path in folder.iterdir() if path.is_dir() and path.suffix == ""] == []
    corpus = load(source)
    assert corpus.report.read == 2000
    assert list(folder.glob("*.partial")) == []
    while any(Path(f"/proc/{worker}").exists() for worker in workers):  # none is left behind
        assert time.monotonic() < deadline
        time.sleep(0.1)
