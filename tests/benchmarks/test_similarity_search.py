import json

import pytest
from rdkit import Chem

BLOCKS = ["CC(=O)O", "CCC(=O)O", "CCN", "CNC", "CCO", "c1ccccc1", "NCC(=O)O", "C" * 20 + "N"]
PRODUCTS = {  # no ring, no block with two groups, no large block
    *("CCNC(C)=O", "CCNC(=O)CC", "CC(=O)N(C)C", "CCC(=O)N(C)C", "CCOC(C)=O", "CCOC(=O)CC"),
}


@pytest.fixture
def script(monkeypatch, tmp_path):
    import similarity_search
    from datasets import Dataset

    class Corpus:
        dataset = Dataset.from_dict({"smiles": BLOCKS})

    monkeypatch.setattr(similarity_search, "load_corpus", lambda *_, **__: Corpus)
    monkeypatch.setattr(similarity_search, "RESULTS", tmp_path)
    monkeypatch.setattr(similarity_search, "SEARCHES", 2)
    return similarity_search


def test_the_library_holds_every_amide_and_ester_once(script):
    library = script.make_library(100, seed=0)
    assert sorted(library) == sorted({Chem.CanonSmiles(smiles) for smiles in PRODUCTS})
    assert script.make_library(3, seed=0) == library[:3]


def test_a_molecule_of_the_library_finds_itself(script, monkeypatch, tmp_path):
    monkeypatch.setattr(script, "QUERIES", {"ester": "O=C(C)OCC"})
    monkeypatch.setattr("sys.argv", ["similarity_search.py"])
    script.main()
    written = json.loads((tmp_path / "similarity_search.json").read_text())
    assert written["molecules"] == len(PRODUCTS)
    found = written["queries"]["ester"]
    assert found["median_seconds"] > 0
    assert found["hits"][0]["smiles"] == "CCOC(C)=O"
    assert found["hits"][0]["cosine"] == pytest.approx(1, abs=1e-5)
    cosines = [hit["cosine"] for hit in found["hits"]]
    assert cosines == sorted(cosines, reverse=True)
