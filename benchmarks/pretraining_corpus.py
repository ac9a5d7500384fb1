"""The corpus of `smilex-small`: unlabelled molecules of several sources, without those of any test part.

ChEMBL gives the breadth of drug-like molecules, but charges and salts were taken off there; NCI, HIV, MUV and ToxCast
bring charges, metals, stereo and large molecules. Molecules of the test part of any benchmark set (scaffold split,
compared by the canonical SMILES of their largest fragment) are left out, so that no encoder has seen a molecule that it
is tested on. A manifest beside the corpus says what went in.

    SMILEX_DATA=moleculenet python benchmarks/pretraining_corpus.py chembl.smi.gz runs/corpus.smi
"""

import argparse
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from moleculenet_report import CLASSES, VALUES

from smilex.data.cleaning import RemovalError, clean_row
from smilex.data.corpus import load_corpus
from smilex.data.moleculenet import DATASETS
from smilex.data.properties import load_properties
from smilex.data.splits import split
from smilex.runs import write_json, write_text


class Origin(NamedTuple):
    """Where molecules of the corpus come from."""

    name: str
    address: str
    licence: str
    read: Callable[[], Any]


def origins(chembl: str) -> list[Origin]:
    """List the sources; a molecule belongs to the first that has it."""
    return [
        Origin("ChEMBL, sample of releases 30 and 31", "https://www.ebi.ac.uk/chembl", "CC BY-SA 3.0", lambda: chembl),
        Origin("NCI, first 5000, as RDKit ships it", "https://github.com/rdkit/rdkit", "BSD 3-Clause", lambda: "nci5k"),
        _moleculenet("hiv", "public domain (NCI)"),
        _moleculenet("muv", "public domain (PubChem)"),
        _moleculenet("toxcast", "public domain (US EPA)"),
    ]


def _moleculenet(name: str, licence: str) -> Origin:
    return Origin(f"MoleculeNet {name}", DATASETS[name].url, licence, lambda: load_properties(name).smiles)


def tested_molecules() -> set[str]:
    """Every molecule of a test part, as cleaning writes those of a corpus."""
    found = set()
    for name in (*CLASSES, *VALUES):
        smiles = load_properties(name).smiles
        for row in split(smiles, "scaffold").test:
            with suppress(RemovalError):
                found.add(clean_row(smiles[row]))
    return found


def write_corpus(chembl: str, path: Path) -> dict[str, Any]:
    """Write the corpus, one canonical SMILES a line, and its manifest as JSON beside it; return the manifest."""
    tested = tested_molecules()
    kept: dict[str, None] = {}  # a set that keeps the order
    sources = []
    for origin in origins(chembl):
        corpus = load_corpus(origin.read(), progress=False)
        found = corpus.dataset["smiles"][:]
        allowed = [text for text in found if text not in tested]
        before = len(kept)
        kept.update(dict.fromkeys(allowed))
        counts = {
            "read": corpus.report.read,
            "removed": corpus.report.removed,
            "tested_left_out": len(found) - len(allowed),
            "new": len(kept) - before,
        }
        sources.append({"name": origin.name, "address": origin.address, "licence": origin.licence, **counts})
    manifest = {"name": path.name, "molecules": len(kept), "tested_molecules": len(tested), "sources": sources}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "\n".join(kept) + "\n")
    write_json(path.with_suffix(".json"), manifest)
    return manifest


def main() -> None:
    """Write the corpus and print the manifest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chembl", help="a file of ChEMBL molecules")
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    manifest = write_corpus(arguments.chembl, arguments.output)
    for source in manifest["sources"]:
        print(f"{source['name']}: {source['read']} read, {source['tested_left_out']} tested, {source['new']} new")
    print(f"{manifest['molecules']} molecules in {arguments.output}")


if __name__ == "__main__":
    main()
