"""Corpus: how fast molecules are cleaned and tokenised on one core, and what loading large files costs in memory."""

from pathlib import Path

import torch
from corpus_memory import measure as load
from throughput_corpus import Mixture
from throughput_measure import Figures, Size, rate, take_turns

from smilex.data.cleaning import Settings, clean_chunk
from smilex.tokenization import MAX_TOKENS, SmilesTokenizer


def measure(mixture: Mixture, size: Size, source: str) -> Figures:
    """Measure molecules a second; load a file of each size once, with as many workers as there are threads."""
    settings = Settings(neutralize=False, max_length=MAX_TOKENS, tokenizer=SmilesTokenizer().backend_tokenizer.to_str())
    molecules = mixture.smiles[: size.cleaned]
    rows = take_turns(
        {"clean and tokenise, one core": rate(lambda: clean_chunk(0, molecules, settings), len(molecules))}, size.rounds
    )
    cores = torch.get_num_threads()
    for count in size.loaded:
        run = load(count, source, cores)
        seconds = run["read"] / run["seconds"]
        rows[f"load {run['read']:,} of {Path(source).name}"] = {
            **dict.fromkeys(("median", "min", "max"), seconds),
            "rounds": [seconds],
            "molecules_per_second_and_core": seconds / cores,
            "peak_rss_mb": run["peak_rss_mb"],
            "cache_mb": run["cache_mb"],
        }
    return {"unit": "molecules/s", "rows": rows}
