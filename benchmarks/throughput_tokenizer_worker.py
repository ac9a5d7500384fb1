"""A tokenizer in a process of its own, for `throughput_tokenizers.py`; the peers run beside an older transformers.

    python benchmarks/throughput_tokenizer_worker.py smilex molecules.smi 1000

Each line of JSON on stdin, "single" or "batch", is answered with the seconds that the molecules took.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def smilex_tokenizer(_: list[str]) -> Any:
    """Return ours."""
    from smilex import SmilesTokenizer

    return SmilesTokenizer()


def smirk_tokenizer(_: list[str]) -> Any:
    """Return smirk's fast tokenizer; its vocabulary comes with it."""
    from smirk import SmirkTokenizerFast  # type: ignore[import-not-found]

    return SmirkTokenizerFast()


def deepchem_tokenizer(smiles: list[str]) -> Any:
    """Return DeepChem's tokenizer; its vocabulary file is made of the molecules, as its packages bring none."""
    from deepchem.feat.smiles_tokenizer import BasicSmilesTokenizer, SmilesTokenizer

    split = BasicSmilesTokenizer()
    tokens = sorted({token for text in smiles for token in split.tokenize(text)})
    special = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.txt"
        path.write_text("".join(f"{token}\n" for token in [*special, *tokens]), encoding="utf-8")
        return SmilesTokenizer(str(path))


TOKENIZERS: dict[str, Callable[[list[str]], Any]] = {
    "smilex": smilex_tokenizer,
    "smirk": smirk_tokenizer,
    "DeepChem": deepchem_tokenizer,
}


def encode(tokenizer: Any, smiles: list[str], way: str) -> dict[str, float]:
    """Tokenise the molecules one by one or in one batch; return seconds and tokens a molecule."""
    start = time.perf_counter()
    ids = tokenizer(smiles)["input_ids"] if way == "batch" else [tokenizer(text)["input_ids"] for text in smiles]
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "tokens": sum(map(len, ids)) / len(smiles)}


def main(name: str, path: str, count: str) -> None:
    """Answer until stdin ends; whatever libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    smiles = Path(path).read_text(encoding="utf-8").split()[: int(count)]
    tokenizer = TOKENIZERS[name](smiles)
    for line in sys.stdin:
        answers.write(json.dumps(encode(tokenizer, smiles, json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
