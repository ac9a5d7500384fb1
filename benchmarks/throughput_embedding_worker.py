"""One way to encode molecules in a process of its own, for `throughput_embedding.py`.

Each line of JSON on stdin, a number of molecules, is answered with the seconds that they took and the peak memory of
the process so far.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

Encode = Callable[[list[str]], np.ndarray]

PLAIN_BATCH = 128
DEEPCHEM_BATCH = 100
"""Default of DeepChem's HuggingFaceModel."""


def with_smilex(encoder: str, _: list[str]) -> Encode:
    """`smilex.embed`, which checks the molecules and writes them as canonical SMILES too."""
    import smilex

    return lambda smiles: smilex.embed(smiles, encoder)


def with_transformers(encoder: str, _: list[str]) -> Encode:
    """Call the same encoder on the molecules in their order, with each batch padded to its longest."""
    from transformers import AutoModel, AutoTokenizer

    import smilex.modeling  # noqa: F401 (AutoModel finds ExLM with it)

    tokenizer, model = AutoTokenizer.from_pretrained(encoder), AutoModel.from_pretrained(encoder).eval()
    return lambda smiles: _in_order(smiles, tokenizer, PLAIN_BATCH, lambda batch: model(**batch).pool("mean"))


def with_deepchem(encoder: str, _: list[str]) -> Encode:
    """Call a RoBERTa of the same size as DeepChem's HuggingFaceModel does."""
    from throughput_training import roberta_config
    from transformers import AutoTokenizer, RobertaModel

    from smilex.modeling.loading import load_config

    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = RobertaModel(roberta_config(load_config(Path(encoder))), add_pooling_layer=False).eval()

    def mean(batch: Any) -> torch.Tensor:
        real = batch["attention_mask"].unsqueeze(-1)
        return (model(**batch).last_hidden_state * real).sum(1) / real.sum(1)

    return lambda smiles: _in_order(smiles, tokenizer, DEEPCHEM_BATCH, mean)


def forward_alone(encoder: str, molecules: list[str]) -> Encode:
    """Call the encoder alone, on tokens that are there, in batches of like lengths: the most that can be reached."""
    from smilex.embedding import embed_rows
    from smilex.modeling import ExLMModel
    from smilex.modeling.loading import load_model
    from smilex.tokenization import SmilesTokenizer

    model = load_model(ExLMModel, Path(encoder))
    rows = SmilesTokenizer()(molecules)["input_ids"]
    return lambda smiles: embed_rows(model, rows[: len(smiles)], "mean")


WAYS: dict[str, Callable[[str, list[str]], Encode]] = {
    "smilex.embed": with_smilex,
    "plain transformers loop": with_transformers,
    "RoBERTa, DeepChem's way": with_deepchem,
    "the encoder's forward alone": forward_alone,
}


@torch.inference_mode()
def _in_order(smiles: list[str], tokenizer: Any, batch_size: int, encode: Callable[[Any], torch.Tensor]) -> np.ndarray:
    parts = []
    for start in range(0, len(smiles), batch_size):
        batch = tokenizer(smiles[start : start + batch_size], padding=True, return_tensors="pt")
        parts.append(encode(batch).numpy())
    return np.concatenate(parts)


def main(way: str, encoder: str, path: str, threads: str) -> None:
    """Answer until stdin ends; whatever libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    torch.set_num_threads(int(threads))
    smiles = Path(path).read_text(encoding="utf-8").split()
    encode = WAYS[way](encoder, smiles)
    for line in sys.stdin:
        wanted = smiles[: json.loads(line)]
        start = time.perf_counter()
        vectors = encode(wanted)
        seconds = time.perf_counter() - start
        if vectors.shape[0] != len(wanted) or not np.isfinite(vectors).all():
            sys.exit(f"{way} gave {vectors.shape} for {len(wanted)} molecules, or not a number")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        answers.write(json.dumps({"seconds": seconds, "peak_rss_mb": round(peak)}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
