"""How to pretrain a small encoder: short runs that differ in one thing each, judged on validation parts only.

The base is ExLM for half a pass over the corpus, then the descriptors of every molecule for a longer one. The rows
change its order, what ExLM hides and expands, the learning rate, the way molecules are written, or the width and depth
of the encoder; or they add a short stage of mirror or mexma. Rows with other sizes train each stage for as many seconds
as the base took; the others read as many molecules.

A cell is one row and seed: pretraining, linear probes of the frozen encoder, and fine-tuning with one seed. Rows stand
in the order of their mean rank over all these figures. Finished cells are not run again, see `cells.py`. The test parts
are not looked at; the corpus should not hold their molecules either, see `pretraining_corpus.py`.

    SMILEX_DATA=moleculenet python benchmarks/encoder_recipe.py --corpus corpus.smi --budget 60
"""

import statistics
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from cells import RESULTS, Board, Cell, Cells, Settings, encoder_arguments, run_cells
from pretrained_encoders import (
    encoder_settings,
    figure_of,
    new_config,
    open_corpus,
    pretrained,
    probe_figures,
    tokens_per_batch,
    training_figures,
)
from scipy.stats import rankdata
from seed_tables import Column, Rows, markdown, plot, probe_columns, values

import smilex
from smilex.data.properties import load_properties
from smilex.modeling.loading import load_config
from smilex.pretraining import PretrainResult
from smilex.runs import write_text

PROBES = ("freesolv", "esol", "lipophilicity", "bace", "bbbp", "clintox", "sider")
TUNED = ("freesolv", "esol")
"""What is fine-tuned: sets of a minute each."""


class Stage(NamedTuple):
    """One objective, how much of a row's `--epochs` it has, and what it is told."""

    objective: str
    share: float
    settings: Mapping[str, Any] = MappingProxyType({})


class Variant(NamedTuple):
    """A row: its stages and the encoder they train."""

    label: str
    stages: tuple[Stage, ...]
    model: Mapping[str, Any] = MappingProxyType({})
    as_long_as_base: bool = False


EXLM = Stage("exlm", 0.5)
DESCRIPTORS = Stage("descriptors", 0.6)


def sized(label: str, layers: int, width: int) -> Variant:
    """Build a row of another size."""
    model = {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": width // 32,
        "intermediate_size": 4 * width,
    }
    return Variant(f"{label}, {layers} × {width}", (EXLM, DESCRIPTORS), model, as_long_as_base=True)


def exlm_with(label: str, model: Mapping[str, Any] = MappingProxyType({}), **settings: Any) -> Variant:
    """Build a row whose first stage differs."""
    return Variant(label, (EXLM._replace(settings=settings), DESCRIPTORS), model)


def descriptors_with(label: str, **settings: Any) -> Variant:
    """Build a row whose second stage differs."""
    return Variant(label, (EXLM, DESCRIPTORS._replace(settings=settings)))


BASE = "base"
VARIANTS = {
    BASE: Variant("ExLM, then descriptors", (EXLM, DESCRIPTORS)),
    "descriptors": Variant("descriptors alone", (DESCRIPTORS._replace(share=1.1),)),
    "exlm": Variant("ExLM alone", (EXLM._replace(share=1.1),)),
    "mlm": Variant("MLM, then descriptors", (Stage("mlm", 0.5), DESCRIPTORS)),
    "masked_30": exlm_with("30 % masked", mask_ratio=0.3),
    "span": exlm_with("spans masked", masking="span"),
    "group": exlm_with("groups masked", masking="group"),
    "k2": exlm_with("k = 2", {"num_states": 2}),
    "slow": descriptors_with("half the learning rate", learning_rate=2.5e-4),
    "fast": descriptors_with("twice the learning rate", learning_rate=1e-3),
    "random": descriptors_with("random SMILES", random_smiles=True),
    "mirror": Variant("and mirror", (EXLM, DESCRIPTORS, Stage("mirror", 0.2))),
    "mexma": Variant("and mexma", (EXLM, DESCRIPTORS, Stage("mexma", 0.2))),
    "deep": sized("deeper", 8, 128),
    "medium": sized("wider", 4, 192),
    "wide": sized("wider and less deep", 2, 256),
}

NOTE = """Validation parts of scaffold splits, seed by seed; mean ± standard deviation over seeds where there are
several. Tuned: the whole encoder, with one seed. Rank: mean over the other columns of a row's place among the rows.
Held-out loss: that of the last objective, on molecules of the corpus. Vectors are means over tokens, and [CLS] after
mexma, which trains that. Rows of other sizes train as many seconds as the first row.
"""


class Key(NamedTuple):
    """Which cell."""

    variant: str
    seed: int


def order(key: Key) -> tuple[int, int]:
    """Sort as the variants are listed."""
    return list(VARIANTS).index(key.variant), key.seed


def settings_of(key: Key, arguments: Namespace) -> Settings:
    """Whatever the figures of a cell depend on besides its seed."""
    variant = VARIANTS[key.variant]
    shared = encoder_settings(arguments.corpus, arguments.model, arguments.datasets)
    stages = [[stage.objective, stage.share, dict(stage.settings)] for stage in variant.stages]
    own = {"stages": stages, "fields": dict(variant.model), "as_long_as_base": variant.as_long_as_base}
    return {**shared, "epochs": arguments.epochs, "tuned": list(arguments.tuned), **own}


def train(key: Key, arguments: Namespace) -> list[PretrainResult]:
    """Pretrain in stages; rows with the same first stages share them."""
    variant = VARIANTS[key.variant]
    lengths: list[dict[str, float]] = [{"epochs": stage.share * arguments.epochs} for stage in variant.stages]
    if variant.as_long_as_base:
        lengths = [{"minutes": run.report["seconds"] / 60} for run in train(key._replace(variant=BASE), arguments)]
    runs: list[PretrainResult] = []
    for stage, length in zip(variant.stages, lengths, strict=True):
        encoder = runs[-1].output_dir if runs else None
        config = load_config(encoder) if encoder else new_config(arguments.model, **variant.model)
        settings: dict[str, Any] = {**stage.settings, **length}
        if encoder is None:
            settings["model"] = config
        if stage.objective != "mirror":
            settings["tokens_per_batch"] = tokens_per_batch(stage.objective, config, open_corpus(arguments.corpus))
        runs.append(
            pretrained(
                arguments.work_dir, arguments.corpus, stage.objective, encoder=encoder, **settings, seed=key.seed
            )
        )
    return runs


def tuned_score(encoder: Path, dataset: str, pooling: str) -> dict[str, Any]:
    """Fine-tune with one seed, and return the figure of the validation part."""
    figure = figure_of(load_properties(dataset).kind)
    with TemporaryDirectory() as directory:
        run = smilex.finetune(dataset, Path(directory) / "run", encoder, pooling=pooling, seeds=1, progress=False)
    return {"figure": figure, "valid": run.report["metrics"]["valid"]["summary"][figure]["mean"]}


def make(key: Key, arguments: Namespace) -> Cell:
    """Train an encoder and measure it."""
    runs = train(key, arguments)
    encoder = runs[-1].output_dir
    pooling = "cls" if VARIANTS[key.variant].stages[-1].objective == "mexma" else "mean"
    probe = probe_figures(encoder, arguments.datasets, pooling)["probe"]
    frozen = {name: {part: found for part, found in scores.items() if part != "test"} for name, scores in probe.items()}
    tuned = {f"{name} tuned": tuned_score(encoder, name, pooling) for name in arguments.tuned}
    return {"threads": torch.get_num_threads(), **training_figures(*runs), "probe": {**frozen, **tuned}}


def with_ranks(cells: Cells, columns: Sequence[Column]) -> Cells:
    """Give each cell its mean rank among those of its seed, 1 for the best."""
    ranked: Cells = {}
    for seed in {key.seed for key in cells}:
        own = {key: cell for key, cell in cells.items() if key.seed == seed}
        places = []
        for column in columns:
            scores = values(own.values(), column.path)
            if len(scores) == len(own):
                places.append(rankdata([-score if column.better is max else score for score in scores]))
        ranks = [statistics.fmean(row) for row in zip(*places, strict=True)] or [None] * len(own)
        ranked |= {key: {**cell, "rank": rank} for (key, cell), rank in zip(own.items(), ranks, strict=True)}
    return ranked


def report(cells: Cells, results: Path) -> str:
    """Write the table and the plot, and return the table."""
    datasets = list(dict.fromkeys(name for cell in cells.values() for name in cell["probe"]))
    scores = probe_columns(datasets, cells.values(), "valid")
    ranked = with_ranks(cells, scores)
    rank = Column("rank", ("rank",), min, 1)
    rows: dict[str, list[Cell]] = {}
    for key in sorted(ranked, key=order):
        rows.setdefault(VARIANTS[key.variant].label, []).append(ranked[key])
    best_first: Rows = dict(sorted(rows.items(), key=lambda row: statistics.fmean(values(row[1], rank.path) or [0])))
    ends = (Column("held-out loss", ("stages", -1, "held_out", "loss")), Column("seconds", ("seconds",), None, 0))
    text = f"{markdown('pretraining', best_first, [rank, *scores, *ends])}\n{NOTE}"
    write_text(results / "encoder_recipe.md", text)
    plot({"": best_first}, [rank, *scores], results / "encoder_recipe.png")
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing; write and print the table, and draw the plot."""
    parser = encoder_arguments(__doc__, "encoder_recipe")
    parser.set_defaults(epochs=1, datasets=list(PROBES))
    parser.add_argument("--tuned", nargs="*", default=list(TUNED), help="what the encoders are fine-tuned on")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="VARIANT")
    chosen = parser.parse_args(arguments)
    board = Board(RESULTS / "encoder_recipe.json", chosen.work_dir, Key, order)
    if not chosen.report_only:
        wanted = sorted((Key(name, seed) for name in chosen.variants for seed in range(chosen.seeds)), key=order)
        wanted.sort(key=lambda key: key.seed)  # every row once, then again
        run_cells(wanted, lambda key: settings_of(key, chosen), lambda key: make(key, chosen), board, chosen.budget)
    print(report(board.cells(), RESULTS))


if __name__ == "__main__":
    main()
