"""How long a similarity search through 100 000 molecules takes, and what it finds.

The library is what two building blocks can form: amides and esters of the acids, amines and alcohols of RDKit's NCI
molecules, written by reactions. It is embedded by `smilex-small`, which takes minutes; each search is then one call of
scikit-learn. Queries are local anaesthetics, amides and esters themselves.

    python benchmarks/similarity_search.py
"""

import argparse
import statistics
import time
from itertools import product
from typing import Any

import numpy as np
from cells import RESULTS
from rdkit import Chem
from rdkit.Chem import AllChem
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

import smilex
from smilex.data.corpus import load_corpus
from smilex.runs import versions, write_json

ACID = Chem.MolFromSmarts("[CX3;!$(C(=O)O[!#1])](=O)[OX2H1]")
AMINE = Chem.MolFromSmarts("[NX3;H2,H1;!$(NC=[O,S,N]);!$(N[!#6])]")
ALCOHOL = Chem.MolFromSmarts("[OX2H1;$(O[#6]);!$(OC=[O,S,N])]")
COUPLING = AllChem.ReactionFromSmarts("[C:1](=[O:2])[OX2H1].[N,O;!H0;!$(*C=[O,S,N]):3]>>[C:1](=[O:2])[*:3]")
LARGEST = 16  # heavy atoms of a building block
SEARCHES = 20  # of each query, for a median time
QUERIES = {"lidocaine": "CCN(CC)CC(=O)Nc1c(C)cccc1C", "benzocaine": "CCOC(=O)c1ccc(N)cc1"}


def matches(mol: Chem.Mol, *groups: Chem.Mol) -> int:
    """Count the functional groups of a molecule."""
    return sum(len(mol.GetSubstructMatches(group)) for group in groups)


def make_library(size: int, seed: int) -> list[str]:
    """Write so many amides and esters, drawn at random among all that the building blocks can form."""
    blocks = [Chem.MolFromSmiles(smiles) for smiles in load_corpus("nci5k", progress=False).dataset["smiles"]]
    blocks = [mol for mol in blocks if mol.GetNumHeavyAtoms() <= LARGEST]
    acids = [mol for mol in blocks if (matches(mol, ACID), matches(mol, AMINE, ALCOHOL)) == (1, 0)]
    partners = [mol for mol in blocks if (matches(mol, ACID), matches(mol, AMINE, ALCOHOL)) == (0, 1)]
    pairs = list(product(acids, partners))
    found: dict[str, None] = {}  # a set that keeps the order
    for row in np.random.default_rng(seed).permutation(len(pairs)):
        found[Chem.MolToSmiles(COUPLING.RunReactants(pairs[row])[0][0])] = None
        if len(found) == size:
            break
    return list(found)


def search(index: NearestNeighbors, scale: StandardScaler, library: list[str], query: str) -> dict[str, Any]:
    """Find the five nearest molecules; a search embeds the query too."""
    seconds = []
    for _ in range(SEARCHES):
        start = time.perf_counter()
        distances, rows = index.kneighbors(scale.transform(smilex.embed([query])))
        seconds.append(time.perf_counter() - start)
    hits = [{"smiles": library[row], "cosine": 1 - float(d)} for d, row in zip(distances[0], rows[0], strict=True)]
    return {"query": query, "median_seconds": statistics.median(seconds), "hits": hits}


def main() -> None:
    """Write the library, embed it, and search it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--molecules", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    library = make_library(arguments.molecules, arguments.seed)
    start = time.perf_counter()
    vectors = smilex.embed(library)
    seconds = time.perf_counter() - start
    scale = StandardScaler().fit(vectors)
    index = NearestNeighbors(n_neighbors=5, metric="cosine", algorithm="brute").fit(scale.transform(vectors))
    queries = {name: search(index, scale, library, query) for name, query in QUERIES.items()}
    about = {"versions": versions(), "molecules": len(library), "embedding_seconds": round(seconds, 1)}
    write_json(RESULTS / "similarity_search.json", {**about, "queries": queries})
    for name, found in queries.items():
        print(f"{name}: {found['median_seconds']:.3f} s, {' '.join(hit['smiles'] for hit in found['hits'])}")


if __name__ == "__main__":
    main()
