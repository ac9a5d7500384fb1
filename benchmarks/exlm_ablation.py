"""What each part of ExLM is worth: its states, its transitions, its positions, and which tokens are masked, how many.

One base (k = 4 states, 15 % of the tokens at random), then each part changed alone:

- k = 1, 2, 8. One state is a plain masked language model (MLM). Another row trains it for as many seconds as the base
  took with the same seed.
- Without transitions, all paths through the states are equally likely, so that targets are still aligned with states,
  but nothing is learned of which states belong together.
- Transitions that start uniform: all their weights random and small, where ours start by falling with the distance of
  two states, see `smilex.modeling.masked_lm.StateTransitions`.
- Without 2D rotary positions, each state is a place of its own in the expanded sequence. States that only shared their
  token's position, without an index, would be equal to each other.
- Expanded from the third layer on; those below see every token once, which takes less time.
- 30 % and 45 % masked; runs of neighbours, or functional groups and rings, masked.

Every row but one reads as many molecules in as many steps. Perplexity, accuracy and entropy at masks depend on which
tokens are masked: they compare rows of one kind of mask; the linear probes compare all. A cell is one row and seed;
finished ones are not run again, see `cells.py`.

    SMILEX_DATA=moleculenet python benchmarks/exlm_ablation.py --corpus chembl.smi.gz --budget 60
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from cells import RESULTS, Board, Cell, Cells, Settings, encoder_arguments, run_cells
from pretrained_encoders import (
    encoder_settings,
    new_config,
    open_corpus,
    pretrained,
    probe_figures,
    tokens_per_batch,
    training_figures,
)
from seed_tables import Column, Rows, plot, probe_tables
from torch import nn

from smilex.modeling import ExLMConfig, ExLMForMaskedLM
from smilex.pretraining import PretrainResult
from smilex.runs import save_model, write_text
from smilex.tokenization import SmilesTokenizer


class Variant(NamedTuple):
    """What a row changes of the base."""

    label: str
    model: Mapping[str, Any] = MappingProxyType({})
    training: Mapping[str, Any] = MappingProxyType({})
    as_long_as_base: bool = False
    uniform_start: bool = False


BASE = "exlm"
VARIANTS = {
    BASE: Variant("ExLM, k = 4"),
    "k1": Variant("k = 1 (MLM)", {"num_states": 1}),
    "k1_long": Variant("k = 1 (MLM), at equal cost", {"num_states": 1}, as_long_as_base=True),
    "k2": Variant("k = 2", {"num_states": 2}),
    "k8": Variant("k = 8", {"num_states": 8}),
    "no_transitions": Variant("without transitions", {"transitions": False}),
    "uniform_start": Variant("transitions that start uniform", uniform_start=True),
    "no_rotary_2d": Variant("without 2D rotary positions", {"rotary_2d": False}),
    "upper": Variant("expanded from the third layer on", {"first_expanded_layer": 2}),
    "masked_30": Variant("30 % masked", training={"mask_ratio": 0.3}),
    "masked_45": Variant("45 % masked", training={"mask_ratio": 0.45}),
    "span": Variant("spans masked", training={"masking": "span"}),
    "group": Variant("groups masked", training={"masking": "group"}),
}

FIGURES = (
    Column("perplexity at masks", ("stages", 0, "held_out", "perplexity")),
    Column("masked accuracy", ("stages", 0, "held_out", "masked_accuracy")),
    Column("entropy at masks", ("stages", 0, "held_out", "entropy")),
    Column("seconds", ("seconds",), None, 0),
)
NOTE = """Mean ± standard deviation over seeds. Held-out molecules, masked as in training, so that the first three
figures compare rows of one kind of mask; entropy in nats. Vectors of the probes are means over tokens. Seeds were
trained on different computers: their seconds cannot be compared.
"""


class Key(NamedTuple):
    """Which cell."""

    variant: str
    seed: int


def order(key: Key) -> tuple[int, int]:
    """Sort as the table does."""
    return list(VARIANTS).index(key.variant), key.seed


def settings_of(key: Key, arguments: Namespace) -> Settings:
    """Whatever the figures of a cell depend on besides its seed."""
    variant = VARIANTS[key.variant]
    shared = encoder_settings(arguments.corpus, arguments.model, arguments.datasets)
    return {**shared, "epochs": arguments.epochs, "change": {**variant.model, **variant.training}}


def save_uniform_start(directory: Path, config: ExLMConfig, seed: int) -> None:
    """Save a new model whose transitions are random and small, so that log E is nearly uniform over the successors."""
    torch.manual_seed(seed)
    model = ExLMForMaskedLM(config)
    for name, weight in model.named_parameters():
        if name.startswith("transitions."):
            nn.init.zeros_(weight) if name.endswith("bias") else nn.init.normal_(weight, std=config.initializer_range)
    directory.mkdir(parents=True, exist_ok=True)
    save_model(model, SmilesTokenizer(), directory)


def train(key: Key, arguments: Namespace) -> PretrainResult:
    """Pretrain one variant."""
    variant = VARIANTS[key.variant]
    length = {"epochs": arguments.epochs}
    if variant.as_long_as_base:
        base = train(key._replace(variant=BASE), arguments)
        length = {"minutes": base.report["seconds"] / 60}
    config = new_config(arguments.model, **variant.model)
    room = tokens_per_batch("exlm", config, open_corpus(arguments.corpus), **variant.training)
    start: dict[str, Any] = {"model": config}
    if variant.uniform_start:
        start = {"encoder": arguments.work_dir / f"uniform_start-{arguments.model}-seed-{key.seed}"}
        save_uniform_start(start["encoder"], config, key.seed)
    return pretrained(
        arguments.work_dir,
        arguments.corpus,
        "exlm",
        **start,
        tokens_per_batch=room,
        seed=key.seed,
        **variant.training,
        **length,
    )


def make(key: Key, arguments: Namespace) -> Cell:
    """Train an encoder and measure it."""
    run = train(key, arguments)
    return {
        "threads": torch.get_num_threads(),
        **training_figures(run),
        **probe_figures(run.output_dir, arguments.datasets),
    }


def report(cells: Cells, results: Path) -> str:
    """Write the table and the plot, and return the table."""
    rows: Rows = {
        variant.label: own
        for name, variant in VARIANTS.items()
        if (own := [cells[key] for key in sorted(cells, key=order) if key.variant == name])
    }
    tables, test = probe_tables("variant", rows, FIGURES, cells.values())
    text = tables + NOTE
    write_text(results / "exlm_ablation.md", text)
    plot({"": rows}, [*FIGURES, *test], results / "exlm_ablation.png")
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing; write and print the table, and draw the plot."""
    parser = encoder_arguments(__doc__, "exlm_ablation")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="VARIANT")
    chosen = parser.parse_args(arguments)
    board = Board(RESULTS / "exlm_ablation.json", chosen.work_dir, Key, order)
    if not chosen.report_only:
        wanted = sorted((Key(name, seed) for name in chosen.variants for seed in range(chosen.seeds)), key=order)
        wanted.sort(key=lambda key: key.seed)  # every row once, then again
        run_cells(wanted, lambda key: settings_of(key, chosen), lambda key: make(key, chosen), board, chosen.budget)
    print(report(board.cells(), RESULTS))


if __name__ == "__main__":
    main()
