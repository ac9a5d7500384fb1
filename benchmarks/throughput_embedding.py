"""Embedding: `smilex.embed` beside the same encoder in a plain loop, and beside a RoBERTa of the same size.

Each way runs in a process of its own. They take turns on the first molecules; in the end each encodes all of them once,
which gives the peak memory.
"""

from functools import partial
from pathlib import Path

import torch
from throughput_corpus import Mixture
from throughput_embedding_worker import WAYS
from throughput_measure import Figures, Size, Worker, take_turns, workers

from smilex.modeling import ExLMConfig, ExLMModel
from smilex.runs import save_model
from smilex.tokenization import SmilesTokenizer

FORWARD = "the encoder's forward alone"


def measure(mixture: Mixture, size: Size, threads: int, folder: Path) -> Figures:
    """Measure molecules a second and the peak resident memory."""
    encoder = folder / "encoder"
    encoder.mkdir()
    torch.manual_seed(0)
    save_model(ExLMModel(ExLMConfig.from_preset(size.model)), SmilesTokenizer(), encoder)

    def start(way: str) -> Worker:
        arguments = [way, str(encoder), str(mixture.path), str(threads)]
        return Worker("throughput_embedding_worker.py", arguments, threads)

    molecules = min(size.embedded, len(mixture.smiles))
    with workers(start, WAYS) as started:

        def molecules_per_second(way: str) -> float:
            return molecules / started[way].ask(molecules)["seconds"]

        rows = {way: partial(molecules_per_second, way) for way in WAYS}
        found = take_turns(rows, size.rounds)
        whole = len(mixture.smiles)
        for way, worker in started.items():
            answer = worker.ask(whole)
            found[way][f"molecules_per_second_of_{whole}"] = whole / answer["seconds"]
            found[way]["peak_rss_mb"] = answer["peak_rss_mb"]
    for row in found.values():
        row["forward_share"] = row["median"] / found[FORWARD]["median"]
    return {"unit": "molecules/s", "rows": found}
