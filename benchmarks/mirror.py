"""Mirror-BERT in seconds: one pass over 10 000 molecules, from encoders that are pretrained already.

Liu et al. (EMNLP 2021, arXiv 2104.08027) turn encoders of text into encoders of similarity so. The twins of a molecule
are its own SMILES, as in the paper, or a random one. The encoders are those of `moleculenet_encoders.py` and
`smilex-small`; the row of each without mirror is what it starts from. The molecules are drawn from the corpus; the
figures of `smilex.analysis` are taken on others of it, which are held out, and a linear probe on each dataset.

A cell is one encoder, kind of twins and seed. Finished cells are not run again, see `cells.py`.

    SMILEX_DATA=moleculenet python benchmarks/mirror.py --corpus chembl.smi.gz
"""

import hashlib
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from cells import RESULTS, Board, Cell, Cells, Settings, corpus_arguments, run_cells
from moleculenet_encoders import ENCODERS
from pretrained_encoders import (
    analysis_figures,
    data_settings,
    open_corpus,
    pretrained,
    probe_figures,
    training_figures,
)
from seed_tables import Column, plot, probe_tables

from smilex.modeling.loading import find_encoder
from smilex.runs import write_text

STARTS = {"MLM": ENCODERS / "mlm", "ExLM": ENCODERS / "exlm", "smilex-small": find_encoder("smilex-small")}

TWINS = {"none": "", "same": ", then mirror", "random": ", then mirror of random SMILES"}
"""Kinds of twins, and what a row is called after its encoder."""

MOLECULES = 10_000

FIGURES = (
    Column("retrieval", ("analysis", "retrieval_accuracy"), max),
    Column("alignment", ("analysis", "alignment"), min),
    Column("uniformity", ("analysis", "uniformity"), min),
    Column("neighbourhoods", ("analysis", "neighbourhood_agreement"), max),
    Column("seconds", ("seconds",), None, 0),
)
NOTE = """Mean ± standard deviation over seeds; those of a row without mirror differ in the molecules of the figures.
Retrieval: share of random SMILES nearest to their canonical SMILES, among the held-out molecules. Neighbourhoods:
Spearman's correlation of cosine with Tanimoto similarity. Seconds of mirror, on as many threads as `threads` says.
"""


class Key(NamedTuple):
    """Which cell."""

    start: str
    twins: str
    seed: int


def order(key: Key) -> tuple[int, int, int]:
    """Sort as the table does."""
    return list(STARTS).index(key.start), list(TWINS).index(key.twins), key.seed


def settings_of(key: Key, arguments: Namespace) -> Settings:
    """Whatever the figures of a cell depend on besides what its key says."""
    weights = (STARTS[key.start] / "model.safetensors").read_bytes()
    return {
        "encoder_sha256": hashlib.sha256(weights).hexdigest(),
        "molecules": MOLECULES,
        **data_settings(arguments.corpus, arguments.datasets),
    }


def make(key: Key, arguments: Namespace) -> Cell:
    """Train an encoder, or take it as it is, and measure it."""
    encoder, training = STARTS[key.start], {}
    if key.twins != "none":
        share = MOLECULES / len(open_corpus(arguments.corpus).dataset)
        settings = {"twins": key.twins, "epochs": share, "seed": key.seed}
        run = pretrained(arguments.work_dir, arguments.corpus, "mirror", encoder=encoder, **settings)
        encoder, training = run.output_dir, {"threads": torch.get_num_threads(), **training_figures(run)}
    return {
        **training,
        **analysis_figures(encoder, arguments.corpus, "mean", key.seed),
        **probe_figures(encoder, arguments.datasets),
    }


def report(cells: Cells, results: Path) -> str:
    """Write the table and the plot, and return the table."""
    rows: dict[str, list[Cell]] = {}
    for key in sorted(cells, key=order):
        rows.setdefault(f"{key.start}{TWINS[key.twins]}", []).append(cells[key])
    tables, test = probe_tables("encoder", rows, FIGURES, cells.values())
    text = tables + NOTE
    write_text(results / "mirror.md", text)
    plot({"": rows}, [*FIGURES[:-1], *test], results / "mirror.png")
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing; write and print the table, and draw the plot."""
    chosen = corpus_arguments(__doc__, "mirror").parse_args(arguments)
    board = Board(RESULTS / "mirror.json", chosen.work_dir, Key, order)
    if not chosen.report_only:
        wanted = [Key(start, twins, seed) for seed in range(chosen.seeds) for start in STARTS for twins in TWINS]
        run_cells(wanted, lambda key: settings_of(key, chosen), lambda key: make(key, chosen), board, chosen.budget)
    print(report(board.cells(), RESULTS))


if __name__ == "__main__":
    main()
