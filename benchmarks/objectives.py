"""What each objective makes of an encoder: mlm, exlm, mae_lm, each followed by mirror, mexma or descriptors.

A row more is descriptors alone. All rows have the same budget, once in molecules that are read and once in seconds of
training on the same cores. A row of two stages spends a fifth of it on the second one. Batches hold as many molecules
for all objectives but mirror, which has its own.

A cell is one budget, row and seed: pretraining, the figures of `smilex.analysis` on the held-out molecules, and a
linear probe on each dataset. Finished cells are not run again, see `cells.py`. Corpora may hold molecules that the
probes are tested on, without their labels, for all rows alike; `moleculenet_encoders.py` writes a corpus without them.
What stands in `results/`, here and of the other scripts that pretrain many encoders, was made from every seventh
molecule of that corpus, on one thread:

    awk 'NR % 7 == 1' runs/moleculenet/corpus.smi > runs/chembl33k.smi
    export SMILEX_DATA=moleculenet OMP_NUM_THREADS=1
    python benchmarks/objectives.py --corpus runs/chembl33k.smi --epochs 1 --minutes 2 --budget 60
"""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from cells import RESULTS, Board, Cell, Cells, Settings, encoder_arguments, run_cells
from pretrained_encoders import (
    analysis_figures,
    encoder_settings,
    new_config,
    open_corpus,
    pretrained,
    probe_figures,
    tokens_per_batch,
    training_figures,
)
from seed_tables import Column, Rows, plot, probe_tables

from smilex.modeling.loading import load_config
from smilex.pretraining import PretrainResult
from smilex.runs import write_text

FIRST = ("mlm", "exlm", "mae_lm")
SECOND = ("mirror", "mexma", "descriptors")
METHODS = (*FIRST, "descriptors", *(f"{first}+{second}" for first in FIRST for second in SECOND))
SECOND_SHARE = 0.2
"""Share of the budget that the second stage has."""

BUDGETS = ("molecules", "seconds")

FIGURES = (
    Column("held-out loss", ("stages", -1, "held_out", "loss")),
    Column("perplexity at masks", ("stages", -1, "held_out", "perplexity"), min),
    Column("entropy at masks", ("stages", -1, "held_out", "entropy")),
    Column("rank", ("analysis", "last_effective_rank"), None, 1),
    Column("rank beside masks", ("analysis", "last_effective_rank_with_masks"), None, 1),
    Column("retrieval", ("analysis", "retrieval_accuracy"), max),
    Column("alignment", ("analysis", "alignment")),
    Column("uniformity", ("analysis", "uniformity")),
    Column("neighbourhoods", ("analysis", "neighbourhood_agreement"), max),
    Column("seconds", ("seconds",), None, 0),
)
NOTE = """Mean ± standard deviation over seeds. The loss is that of the last objective, so that it compares rows of the
same last objective alone. Perplexity and entropy (nats) at masks: of the rows whose last objective predicts the hidden
tokens of single molecules. Rank: 0.9-effective rank of the last layer's vectors of real tokens, in whole molecules and
beside masks. Retrieval: share of random SMILES nearest to their canonical SMILES. Alignment and uniformity: the lower
the better, but vectors that are all the same have the best alignment. Neighbourhoods: Spearman's correlation of cosine
with Tanimoto similarity. Vectors are means over tokens, and [CLS] after mexma, which trains that. Seeds were
trained on different computers: their seconds cannot be compared.
"""


class Key(NamedTuple):
    """Which cell."""

    equal: str
    method: str
    seed: int


def order(key: Key) -> tuple[int, int, int]:
    """Sort as the table does."""
    return BUDGETS.index(key.equal), METHODS.index(key.method), key.seed


def settings_of(key: Key, arguments: Namespace) -> Settings:
    """Whatever the figures of a cell depend on besides its seed."""
    shared = encoder_settings(arguments.corpus, arguments.model, arguments.datasets)
    length = {"epochs": arguments.epochs} if key.equal == "molecules" else {"minutes": arguments.minutes}
    return {**shared, **length, "second_share": SECOND_SHARE, "pooling": pooling(key.method)}


def pooling(method: str) -> str:
    """Return the vector of a molecule that the last objective trains."""
    return "cls" if method.endswith("mexma") else "mean"


def train(key: Key, arguments: Namespace) -> list[PretrainResult]:
    """Pretrain in one stage or two; both rows with the same first stage share it."""
    first, _, second = key.method.partition("+")
    whole = arguments.epochs if key.equal == "molecules" else arguments.minutes
    length = "epochs" if key.equal == "molecules" else "minutes"
    corpus = open_corpus(arguments.corpus)
    config = new_config(arguments.model)
    settings: dict[str, Any] = {"model": config, "tokens_per_batch": tokens_per_batch(first, config, corpus)}
    share = 1 - SECOND_SHARE if second else 1.0
    stages = [
        pretrained(arguments.work_dir, arguments.corpus, first, **settings, seed=key.seed, **{length: share * whole})
    ]
    if second:
        encoder = stages[0].output_dir
        settings = {}
        if second != "mirror":
            settings["tokens_per_batch"] = tokens_per_batch(second, load_config(encoder), corpus)
        stages.append(
            pretrained(
                arguments.work_dir,
                arguments.corpus,
                second,
                encoder=encoder,
                **settings,
                seed=key.seed,
                **{length: SECOND_SHARE * whole},
            )
        )
    return stages


def make(key: Key, arguments: Namespace) -> Cell:
    """Train an encoder and measure it."""
    stages = train(key, arguments)
    encoder, vector = stages[-1].output_dir, pooling(key.method)
    return {
        "threads": torch.get_num_threads(),
        **training_figures(*stages),
        **analysis_figures(encoder, arguments.corpus, vector, key.seed),
        **probe_figures(encoder, arguments.datasets, vector),
    }


def grouped(cells: Cells) -> dict[str, Rows]:
    """Sort the cells into a table for each kind of budget."""
    groups: dict[str, dict[str, list[Cell]]] = {}
    for key in sorted(cells, key=order):
        groups.setdefault(f"equal {key.equal}", {}).setdefault(key.method, []).append(cells[key])
    return groups


def report(cells: Cells, results: Path) -> str:
    """Write the table and the plot, and return the table."""
    groups = grouped(cells)
    text, test = "", []
    for name, rows in groups.items():
        tables, test = probe_tables("objective", rows, FIGURES, cells.values())
        text += f"## {name.capitalize()}\n\n{tables}"
    text += NOTE
    write_text(results / "objectives.md", text)
    plot(groups, [*FIGURES[1:-1], *test], results / "objectives.png")
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing; write and print the table, and draw the plot."""
    parser = encoder_arguments(__doc__, "objectives")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, metavar="METHOD")
    parser.add_argument("--equal", nargs="+", choices=BUDGETS, default=BUDGETS)
    parser.add_argument("--minutes", type=float, default=10, help="training of a row where seconds are equal")
    chosen = parser.parse_args(arguments)
    board = Board(RESULTS / "objectives.json", chosen.work_dir, Key, order)
    if not chosen.report_only:
        wanted = [
            Key(equal, method, seed)
            for seed in range(chosen.seeds)
            for equal in chosen.equal
            for method in sorted(chosen.methods, key=METHODS.index)
        ]
        run_cells(wanted, lambda key: settings_of(key, chosen), lambda key: make(key, chosen), board, chosen.budget)
    print(report(board.cells(), RESULTS))


if __name__ == "__main__":
    main()
