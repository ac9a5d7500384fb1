import json
from types import SimpleNamespace

import pytest

CHAINS = ["C" * size for size in range(1, 31)]
RINGS = [f"C1{'C' * size}1" for size in range(2, 12)]
"""Each has a scaffold of its own, and the split by scaffold tests on some of them."""


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """The module, where every set of MoleculeNet holds the chains and rings, and one that is no molecule."""
    import pretraining_corpus

    sets = SimpleNamespace(smiles=["C1CC", *CHAINS, *RINGS])
    monkeypatch.setattr(pretraining_corpus, "load_properties", lambda _: sets)
    monkeypatch.setenv("SMILEX_CACHE", str(tmp_path / "cache"))
    return pretraining_corpus


def test_no_molecule_of_a_test_part_is_in_the_corpus(corpus, tmp_path):
    tested = corpus.tested_molecules()
    assert tested
    assert tested < set(CHAINS + RINGS)
    chembl = tmp_path / "chembl.smi"
    # The same molecules, otherwise written; one that no set has, twice; and one that is none.
    written = [f"{text}.[Na+]" for text in CHAINS + RINGS]
    chembl.write_text("\n".join([*written, "OCCCCCN", "NCCCCCO", "C1CC"]))
    manifest = corpus.write_corpus(str(chembl), tmp_path / "new" / "corpus.smi")
    kept = (tmp_path / "new" / "corpus.smi").read_text().splitlines()
    assert json.loads((tmp_path / "new" / "corpus.json").read_text()) == manifest
    assert not tested & set(kept)
    assert len(set(kept)) == len(kept) == manifest["molecules"] == sum(source["new"] for source in manifest["sources"])
    assert kept[: len(CHAINS + RINGS) - len(tested)] == [text for text in CHAINS + RINGS if text not in tested]
    first, nci, *sets = manifest["sources"]
    assert (first["read"], first["removed"]) == (len(written) + 3, {"duplicate": 1, "invalid SMILES": 1})
    assert first["tested_left_out"] == len(tested)
    assert first["new"] == len(CHAINS + RINGS) - len(tested) + 1
    assert nci["new"] > 4000
    assert [source["new"] for source in sets] == [0, 0, 0]  # ChEMBL had them
    assert all(source["licence"] and source["address"].startswith("http") for source in manifest["sources"])
