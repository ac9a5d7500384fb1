"""Tokenizer: smilex beside smirk's fast tokenizer and DeepChem's SmilesTokenizer.

Both peers need a transformers below version 5. They are installed beside this environment, in a directory that only
their processes look into:

    pip install --no-deps --target runs/peers -r benchmarks/throughput_peers.txt
"""

from functools import partial
from pathlib import Path

from throughput_corpus import Mixture
from throughput_measure import Figures, Size, Worker, take_turns, workers

WAYS = {"one by one": "single", "batch": "batch"}
PEERS = ("smirk", "DeepChem")


def peer_packages(peers: Path) -> list[str]:
    """Name the packages in the directory of the peers, with their versions; none where it is not there."""
    return sorted(path.name.removesuffix(".dist-info") for path in peers.glob("*.dist-info"))


def measure(mixture: Mixture, size: Size, threads: int, peers: Path) -> Figures:
    """Measure molecules a second, one by one and in a batch of all."""
    names = ["smilex", *(PEERS if peer_packages(peers) else ())]

    def start(name: str) -> Worker:
        arguments = [name, str(mixture.path), str(size.tokenized)]
        return Worker("throughput_tokenizer_worker.py", arguments, threads, peers if name in PEERS else None)

    molecules = min(size.tokenized, len(mixture.smiles))
    with workers(start, names) as started:

        def molecules_per_second(name: str, way: str) -> float:
            return molecules / started[name].ask(way)["seconds"]

        rows = {
            f"{name}, {words}": partial(molecules_per_second, name, way)
            for words, way in WAYS.items()
            for name in names
        }
        found = take_turns(rows, size.rounds)
        tokens = {name: round(started[name].ask("batch")["tokens"], 2) for name in names}
    for words in WAYS:
        ours = found[f"smilex, {words}"]["median"]
        for name in names:
            found[f"{name}, {words}"]["smilex_is_faster"] = ours / found[f"{name}, {words}"]["median"]
    return {"unit": "molecules/s", "rows": found, "tokens_per_molecule": tokens}
