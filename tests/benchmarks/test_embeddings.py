import json
from types import SimpleNamespace

import numpy as np
import pytest

from smilex.analysis import prediction_entropy, retrieval, tanimoto_agreement

MOLECULES = ["C" * size + end for size in range(1, 11) for end in ("O", "N", "C(=O)O", "c1ccccc1")]
TOO_LONG = "C" * 600


@pytest.fixture
def embeddings(tmp_path, monkeypatch):
    """The script, where the test parts hold these molecules and one that is too long, and ESOL is those molecules."""
    import embeddings

    sets = SimpleNamespace(smiles=MOLECULES, targets=np.arange(40.0)[:, None])
    monkeypatch.setattr(embeddings, "tested_molecules", lambda: {TOO_LONG, *MOLECULES})
    monkeypatch.setattr(embeddings, "load_properties", lambda _: sets)
    monkeypatch.setattr(embeddings, "RESULTS", tmp_path)
    return embeddings


def test_molecules_are_drawn_among_those_that_can_be_read(embeddings):
    assert set(embeddings.draw_molecules(100, seed=0)) == set(MOLECULES)
    drawn = embeddings.draw_molecules(6, seed=1)
    assert len(set(drawn)) == 6
    assert drawn == embeddings.draw_molecules(6, seed=1) != embeddings.draw_molecules(6, seed=2)


def test_figures_table_and_map(embeddings, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["embeddings.py", "--molecules", "8"])
    embeddings.main()
    rows = {row["encoder"]: row for row in json.loads((tmp_path / "embeddings.json").read_text())["encoders"]}
    assert list(rows) == ["random weights", "MLM", "ExLM", "smilex-small"]
    assert {row["molecules"] for row in rows.values()} == {8}
    smiles = embeddings.draw_molecules(8, seed=0)
    assert rows["smilex-small"]["retrieval_accuracy"] == retrieval(smiles)
    assert rows["smilex-small"]["neighbourhood_agreement"] == pytest.approx(tanimoto_agreement(smiles))
    assert rows["smilex-small"]["entropy"] is rows["random weights"]["entropy"] is None  # no head that predicts tokens
    for name, directory in (("MLM", "mlm"), ("ExLM", "exlm")):
        assert rows[name]["entropy"] == pytest.approx(prediction_entropy(smiles, embeddings.ENCODERS / directory))
    table = (tmp_path / "embeddings.md").read_text()
    assert table in capsys.readouterr().out
    for row in rows.values():
        (line,) = [line for line in table.splitlines() if line.startswith(f"| {row['encoder']} ")]
        assert f"{row['neighbourhood_agreement']:.3f}" in line
    assert (tmp_path / "embeddings.png").read_bytes().startswith(b"\x89PNG")


def test_random_weights_are_the_same_each_time(embeddings, tmp_path):
    for run in ("first", "second"):
        embeddings.encoders(tmp_path / run)
    first, second = ((tmp_path / run / "model.safetensors").read_bytes() for run in ("first", "second"))
    assert first == second
