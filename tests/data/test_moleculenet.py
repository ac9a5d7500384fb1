import csv
import dataclasses
import gzip
import hashlib
import http.server
import importlib.util
import io
import os
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from smilex.data import downloads
from smilex.data.moleculenet import DATASETS
from smilex.data.properties import MOLECULENET, load_properties
from smilex.data.rows import encode_rows
from smilex.errors import SmilexError
from smilex.metrics import CLASSIFICATION_METRICS, REGRESSION_METRICS
from smilex.tokenization import SmilesTokenizer

SHARED = Path(__file__).parents[2] / "../shared/data/moleculenet"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the MoleculeNet files are not here")

# Counted with pandas and RDKit 2026.9 alone: rows, molecules parsed, labels of class 1, of class 0, missing.
COUNTS = {
    "bace": (1513, 1513, 691, 822, 0),
    "bbbp": (2050, 2039, 1567, 483, 0),
    "clintox": (1491, 1487, 1509, 1473, 0),
    "sider": (1427, 1427, 21868, 16661, 0),
    "tox21": (7831, 7823, 5862, 72084, 16026),
    "toxcast": (8615, 8597, 127070, 1411325, 3777060),
    "hiv": (41127, 41120, 1443, 39684, 0),
    "muv": (93127, 93127, 489, 249478, 1333192),
}
# Rows, molecules parsed, mean of the labels; none is missing.
VALUES = {
    "bace_regression": (1513, 1513, 6.5219908936),
    "esol": (1128, 1128, -3.0501019504),
    "freesolv": (642, 642, -3.8030062305),
    "lipophilicity": (4200, 4200, 2.1863357143),
}
SLOW = {"hiv", "muv"}
EVERY_SET = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in [*COUNTS, *VALUES]]


def test_the_registry_is_complete_and_speaks_the_language_of_the_package():
    names = "bace bace_regression bbbp clintox esol freesolv hiv lipophilicity muv pcba qm7 qm8 qm9 sider tox21 toxcast"
    assert list(DATASETS) == names.split()
    assert tuple(DATASETS) == MOLECULENET
    for name, record in DATASETS.items():
        assert record.name == name
        assert record.url.startswith("https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/")
        assert record.metric in (CLASSIFICATION_METRICS if record.kind == "classification" else REGRESSION_METRICS)
        assert len(set(record.tasks)) == len(record.tasks) == (record.n_tasks if record.tasks else 0)
        assert record.references
        assert record.sha256 is None or len(record.sha256) == 64
        # RDKit can only refuse rows of the file.
        assert record.rows is None or record.size <= record.rows
    with pytest.raises(dataclasses.FrozenInstanceError):
        DATASETS["bbbp"].size = 1


def test_addresses_and_tasks_are_those_of_deepchem():
    # Read as text: DeepChem's import takes long.
    spec = importlib.util.find_spec("deepchem")
    if spec is None:
        pytest.skip("DeepChem, the oracle, is not installed")
    folder = Path(spec.origin).parent / "molnet/load_function"
    code = " ".join(path.read_text() for path in folder.glob("*_datasets.py"))
    for record in DATASETS.values():
        assert record.url in code or (record.name == "pcba" and "pcba.csv.gz" in code)
        original = {ours: public for public, ours in record.renamed.items()}
        for task in record.tasks:
            assert f'"{original.get(task, task)}"' in code or f"'{original.get(task, task)}'" in code


@needs_shared
@pytest.mark.parametrize("name", EVERY_SET)
def test_rows_molecules_and_labels_of_each_file(name):
    data = load_properties(name, data_dir=SHARED)
    record = DATASETS[name]
    assert (data.name, data.kind, len(data.task_names)) == (name, record.kind, record.n_tasks)
    rows, parsed = (COUNTS | VALUES)[name][:2]
    assert len(data) == record.rows == rows
    encoded = encode_rows(data.smiles, SmilesTokenizer(), max_length=10_000)
    assert len(encoded.invalid) == rows - parsed
    for row in encoded.invalid:
        assert row.smiles == data.smiles[row.index]
        assert row.reason
    if name in VALUES:
        assert not np.isnan(data.targets).any()
        assert data.targets.mean() == pytest.approx(VALUES[name][2])
    else:
        labels = (int((data.targets == 1).sum()), int((data.targets == 0).sum()), int(np.isnan(data.targets).sum()))
        assert labels == COUNTS[name][2:]


PUBLIC = {
    "bace": "mol,CID,Class,Model,pIC50,MW\nCC,BACE_1,1,Train,9.15,431.5\nCCC,BACE_2,0,Test,2.5,657.8\n",
    "bbbp": "num,name,p_np,smiles\n1,Propanolol,1,CC\n2,other,0,CCC\n",
    "esol": "Compound ID,ESOL predicted log solubility in mols per litre,Minimum Degree,Molecular Weight,"
    "measured log solubility in mols per litre,smiles\na,-0.974,1,457.4,-0.77,CC\nb,-2.9,1,201,-3.3,CCC\n",
    "freesolv": "iupac,smiles,expt,calc\na,CC,-11.01,-9.625\nb,CCC,-4.87,-6.219\n",
    "hiv": "smiles,activity,HIV_active\nCC,CI,0\nCCC,CA,1\n",
    "lipophilicity": "CMPD_CHEMBLID,exp,smiles\nCHEMBL596271,3.54,CC\nCHEMBL1951080,-1.18,CCC\n",
    "toxcast": "smiles,mol_id,a,b\nCC,x1,1.0,\nCCC,x2,0.0,1\nC,x3,0.0,0\n",
    "qm8": "smiles,E1-CC2,E2-CC2,f1-CC2,f2-CC2,E1-PBE0,E2-PBE0,f1-PBE0,f2-PBE0,E1-PBE0,E2-PBE0,f1-PBE0,f2-PBE0,"
    "E1-CAM,E2-CAM,f1-CAM,f2-CAM\nCC," + ",".join(f"{i}.5" for i in range(16)) + "\n"
    "CCC," + ",".join(f"{i}.25" for i in range(16)) + "\n",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_files_with_their_own_columns(tmp_path, name):
    record = DATASETS[name]
    path = tmp_path / record.file
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(PUBLIC[name].encode()))
    else:
        path.write_text(PUBLIC[name])
    data = load_properties(name, data_dir=tmp_path)
    assert data.smiles[:2] == ["CC", "CCC"]
    assert data.task_names == (list(record.tasks) or ["a", "b"])
    assert data.kind == record.kind
    table = next(csv.DictReader(io.StringIO(PUBLIC[name])))
    original = {ours: public for public, ours in record.renamed.items()}
    first = data.task_names[0]
    assert data.targets[0, 0] == float(table[original.get(first, first)])


def test_of_qm8_the_first_pbe0_columns_count(tmp_path):
    (tmp_path / "qm8.csv").write_text(PUBLIC["qm8"])
    data = load_properties("qm8", data_dir=tmp_path)
    assert data.targets[0].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 12.5, 13.5, 14.5, 15.5]


def test_both_sets_of_bace_come_from_one_file(tmp_path):
    (tmp_path / "bace.csv").write_text(PUBLIC["bace"])
    assert load_properties("bace", data_dir=tmp_path).targets.tolist() == [[1], [0]]
    assert load_properties("bace_regression", data_dir=tmp_path).targets.tolist() == [[9.15], [2.5]]
    assert load_properties("bace", target="pIC50", data_dir=tmp_path).kind == "regression"
    assert load_properties("bace", target="MW", data_dir=tmp_path).task_names == ["MW"]


def test_where_files_are_looked_for(tmp_path, monkeypatch):
    def table(folder, label):
        folder.mkdir(parents=True)
        (folder / "freesolv.csv").write_text(f"smiles,expt\nCC,{label}\nCCC,0\n")

    table(tmp_path / "given", 1.5)
    table(tmp_path / "environment", 2.5)
    table(tmp_path / "cache/moleculenet", 3.5)
    monkeypatch.setenv("SMILEX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SMILEX_DATA", raising=False)
    assert load_properties("freesolv").targets[0, 0] == 3.5
    monkeypatch.setenv("SMILEX_DATA", str(tmp_path / "environment"))
    assert load_properties("freesolv").targets[0, 0] == 2.5
    assert load_properties("freesolv", data_dir=tmp_path / "given").targets[0, 0] == 1.5
    with pytest.raises(SmilexError, match=r"there is no folder .*nowhere.*data_dir= or SMILEX_DATA"):
        load_properties("freesolv", data_dir=tmp_path / "nowhere")
    (tmp_path / "given/freesolv.csv").write_text("smiles,y\nCC,1\n")
    with pytest.raises(SmilexError, match=r"freesolv.csv is not the set 'freesolv': it has no column 'expt'"):
        load_properties("freesolv", data_dir=tmp_path / "given")


class Server:
    """A server on this computer that answers as it is told."""

    def __init__(self):
        self.status, self.content, self.length, self.requests = 200, b"", None, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append(self.path)
                self.send_response(outer.status)
                length = len(outer.content) if outer.length is None else outer.length
                if length != "unknown":
                    self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(outer.content)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serve freesolv from here, with an empty cache."""
    monkeypatch.setenv("SMILEX_CACHE", str(tmp_path))
    monkeypatch.delenv("SMILEX_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloads, "SECONDS", 5)
    answering = Server()
    thread = threading.Thread(target=answering.http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    serve(monkeypatch, answering.url + "SAMPL.csv")
    answering.content = freesolv(642)
    yield answering
    answering.http.shutdown()
    answering.http.server_close()
    thread.join(5)


def serve(monkeypatch, url, **changes):
    record = dataclasses.replace(DATASETS["freesolv"], url=url, **changes)
    monkeypatch.setitem(DATASETS, "freesolv", record)


def freesolv(rows):
    lines = [f"molecule {n},{'C' * (n % 20 + 1)},{-n / 100},0" for n in range(rows)]
    return "\n".join(["iupac,smiles,expt,calc", *lines, ""]).encode()


def fails(tmp_path, match):
    """Check that loading fails in one line that says what to do, and that nothing is left behind."""
    with pytest.raises(SmilexError, match=match) as caught:
        load_properties("freesolv")
    message = str(caught.value)
    assert "\n" not in message
    cache = tmp_path / "moleculenet"
    assert f"Put freesolv.csv.gz or freesolv.csv or SAMPL.csv (columns 'smiles' and 'expt') into {cache}" in message
    assert message.count(DATASETS["freesolv"].url) == 2  # what failed, and where to get it by hand
    assert f"{os.getpid()}-" not in message
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_download_is_checked_recorded_and_done_once(server, tmp_path):
    data = load_properties("freesolv")
    assert (len(data), data.task_names) == (642, ["expt"])
    path = tmp_path / "moleculenet/SAMPL.csv"
    assert path.read_bytes() == server.content
    digest = hashlib.sha256(server.content).hexdigest()
    assert path.with_name("SAMPL.csv.sha256").read_text() == f"{digest}  SAMPL.csv\n"
    assert sorted(p.name for p in path.parent.iterdir()) == ["SAMPL.csv", "SAMPL.csv.sha256"]
    assert load_properties("freesolv").fingerprint == data.fingerprint
    assert server.requests == ["/SAMPL.csv"]
    path.write_bytes(server.content.replace(b"-0.01", b"-9.01"))
    with pytest.raises(SmilexError, match=r"SAMPL.csv has changed since its download .*delete both"):
        load_properties("freesolv")


def test_a_gzipped_download_without_its_length(server, tmp_path, monkeypatch):
    serve(monkeypatch, server.url + "freesolv.csv.gz")
    server.content, server.length = gzip.compress(freesolv(642)), "unknown"
    assert len(load_properties("freesolv")) == 642
    assert (tmp_path / "moleculenet/freesolv.csv.gz").read_bytes() == server.content


def test_a_known_hash_is_verified(server, tmp_path, monkeypatch):
    url = server.url + "SAMPL.csv"
    serve(monkeypatch, url, sha256="0" * 64)
    fails(tmp_path, r"has SHA-256 [0-9a-f]{64}, not 0{64}")
    serve(monkeypatch, url, sha256=hashlib.sha256(server.content).hexdigest())
    assert len(load_properties("freesolv")) == 642


def test_a_download_that_breaks_off(server, tmp_path):
    server.length = len(server.content) + 100
    fails(tmp_path, rf"ended after {len(server.content)} of {server.length} bytes")


def test_rows_that_are_missing_without_a_length(server, tmp_path):
    server.content, server.length = freesolv(600), "unknown"
    fails(tmp_path, r"gave 600 of 642 rows")


def test_a_gzip_file_that_is_cut(server, tmp_path, monkeypatch):
    serve(monkeypatch, server.url + "a.csv.gz")
    server.content, server.length = gzip.compress(freesolv(642))[:-100], "unknown"
    with pytest.raises(SmilexError, match="end-of-stream marker"):
        load_properties("freesolv")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<html><body>Sign in</body></html>", "no column 'smiles', 'expt'"),
        (b"smiles,y\nCC,1\n", "no column 'expt'"),
        (b"", "is empty"),
        (b"\xff\xfe\x00", "no proper csv table"),
    ],
)
def test_content_that_is_something_else(server, tmp_path, content, reason):
    server.content = content
    fails(tmp_path, reason)


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_server_that_refuses(server, tmp_path, status):
    server.status = status
    fails(tmp_path, f"the server answers {status} ")


def test_nobody_listens(server, tmp_path, monkeypatch):
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        serve(monkeypatch, f"http://127.0.0.1:{taken.getsockname()[1]}/SAMPL.csv")
        fails(tmp_path, "cannot reach http://127.0.0.1:.*: Connection refused")


def test_a_name_that_cannot_be_resolved(server, tmp_path, monkeypatch):
    serve(monkeypatch, "http://nowhere.invalid/SAMPL.csv")
    monkeypatch.setenv("no_proxy", "*")
    fails(tmp_path, "cannot reach http://nowhere.invalid/SAMPL.csv")


def test_a_server_that_falls_silent(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        serve(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}/SAMPL.csv")
        fails(tmp_path, "cannot reach .*timed out")


def test_a_cache_that_cannot_be_written(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SMILEX_CACHE", str(tmp_path / "file"))
    with pytest.raises(SmilexError, match=r"cannot write .*SAMPL.csv: Not a directory"):
        load_properties("freesolv")


def test_the_progress_bar_is_for_terminals(server, capsys):
    load_properties("freesolv")
    assert capsys.readouterr() == ("", "")


def test_the_progress_bar_counts_the_bytes(server, monkeypatch):
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    monkeypatch.setattr(downloads, "Console", lambda **_: console)
    load_properties("freesolv")
    size = f"{len(server.content) / 1000:.1f}"
    assert f"{size}/{size} kB" in shown.getvalue()
