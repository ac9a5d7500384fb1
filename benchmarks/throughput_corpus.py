"""The molecules of `throughput.py`: a fixed mix of sources, of real lengths."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from smilex.data.cleaning import RemovalError, clean_row
from smilex.data.sources import open_source
from smilex.runs import write_text
from smilex.tokenization import SmilesTokenizer

FEWEST, MOST = 30, 150
"""Tokens of the molecules, [CLS] and [SEP] included."""

PERCENTILES = (5, 25, 50, 75, 95)


class Mixture(NamedTuple):
    """Molecules and where they are from.

    Attributes
    ----------
    path : Path
        A file with a canonical SMILES a line.
    smiles : list of str
        The same molecules.
    about : dict
        How many molecules are from each source, and how their tokens are distributed.
    fingerprint : str
        Hash of the molecules.
    """

    path: Path
    smiles: list[str]
    about: dict[str, Any]
    fingerprint: str


def mix(sources: Sequence[str], size: int, folder: Path) -> Mixture:
    """Take molecules from each source in turn until there are enough, without repeats, and put them in random order.

    A source that has no more leaves its share to the others. So the same sources give the same file.

    Parameters
    ----------
    sources : sequence of str
        Files or built-in names, as `smilex.pretrain` takes them.
    size : int
        Molecules to take, at most.
    folder : Path
        Where the file is written.
    """
    taken: dict[str, tuple[str, int]] = {}
    readers = {source: _suitable(source) for source in sources}
    while readers and len(taken) < size:
        for source in list(readers):
            found = next((pair for pair in readers[source] if pair[0] not in taken), None)
            if found is None:
                del readers[source]
            elif len(taken) < size:
                taken[found[0]] = (source, found[1])
    smiles = list(taken)
    np.random.default_rng(0).shuffle(smiles)
    lengths = np.array([length for _, length in taken.values()])
    text = "".join(f"{molecule}\n" for molecule in smiles)
    fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = folder / f"molecules-{fingerprint}.smi"
    write_text(path, text)
    counts = {Path(source).name: sum(of == source for of, _ in taken.values()) for source in sources}
    tokens = {f"p{percent}": float(np.percentile(lengths, percent)) for percent in PERCENTILES}
    tokens |= {"mean": round(float(lengths.mean()), 1), "min": int(lengths.min()), "max": int(lengths.max())}
    return Mixture(path, smiles, {"molecules": len(smiles), "sources": counts, "tokens": tokens}, fingerprint)


def _suitable(source: str) -> Iterator[tuple[str, int]]:
    """Canonical SMILES and tokens of the molecules of a source that are neither too short nor too long."""
    tokenizer = SmilesTokenizer().backend_tokenizer
    for row in open_source(source).rows():
        try:
            smiles = clean_row(row)
        except RemovalError:
            continue
        length = len(tokenizer.encode(smiles).ids)
        if FEWEST <= length <= MOST:
            yield smiles, length
