"""Does a mask hurt because it is no real token, or because it takes meaning away? The Repeated MLM study, on molecules.

Each token of a molecule is written k times, and each copy is masked with probability p. So a share p of what the
encoder sees is unreal, while only a share p^k of the tokens is hidden: where one copy is left, the meaning is. With p^k
fixed, a larger k has more unreal tokens; with p fixed, a smaller k has more corrupted meaning (Zheng et al., ICML 2025,
arXiv 2501.13397, who compare encoders of text by MNLI).

The encoder is a plain masked language model. [CLS] and [SEP] are written once; the copies stand one after the other,
each at a position of its own. The loss is taken at the copies of tokens that are hidden in every copy: the others could
be read off a copy beside them, and would teach nothing. Every cell reads as many molecules in as many steps. A linear
probe reads the frozen encoder, on molecules whose tokens are written as often as in training, without masks.

    SMILEX_DATA=moleculenet python benchmarks/corrupted_semantics.py --corpus chembl.smi.gz --budget 60
"""

import statistics
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from cells import RESULTS, Board, Cell, Cells, Settings, encoder_arguments, run_cells
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pretrained_encoders import (
    encoder_settings,
    new_config,
    open_corpus,
    pretrained,
    probe_figures,
    repeated,
    tokens_per_batch,
    training_figures,
)
from seed_tables import COLOURS, Column, probe_tables, spread, values
from torch import Tensor
from torch.nn import functional as F

from smilex.data.batching import pad
from smilex.data.masking import IGNORED
from smilex.data.molecules import Molecule
from smilex.modeling import ExLMForMaskedLM
from smilex.modeling.encoder import ExLMPreTrainedModel
from smilex.objectives import OBJECTIVES
from smilex.objectives.base import Batch, Objective
from smilex.runs import write_text

COPIES = (1, 2, 4)
HIDDEN = 0.15
"""p^k, the share of hidden tokens, where it is fixed."""

# The probabilities that hide this share with 1, 2 and 4 copies.
PROBABILITIES = tuple(round(HIDDEN ** (1 / copies), 4) for copies in COPIES)
# Four copies, each masked with 15 %, hide one token of 2 000: nothing to learn from.
GRID = tuple((copies, p) for p in PROBABILITIES for copies in COPIES if p**copies > 0.01)


class RepeatedMLM(Objective):
    """Find tokens that are hidden in each of their copies; `mask_ratio` is the probability that a copy is masked."""

    copies: ClassVar[int]
    model_class: ClassVar[type[ExLMPreTrainedModel]] = ExLMForMaskedLM
    keeps_head: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Any]] = {"mask_ratio": 0.15, "tokens_per_batch": 4096, "learning_rate": 5e-4}
    fixed_fields: ClassVar[Mapping[str, Any]] = {"num_states": 1}

    def encoded_lengths(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the copies, and [CLS] and [SEP] once."""
        return 2 + self.copies * (lengths - 2)

    def collate(self, molecules: list[Molecule], rng: np.random.Generator) -> Batch:
        """Return `input_ids` with masks, and `labels` with the hidden id where all copies of it are masked."""
        rows, labels = zip(*(self._mask(molecule, rng) for molecule in molecules), strict=True)
        return {
            "input_ids": torch.from_numpy(pad(rows, self.config.pad_token_id)),
            "labels": torch.from_numpy(pad(labels, IGNORED)),
        }

    def _mask(self, molecule: Molecule, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        ids = np.array(repeated(molecule.input_ids.tolist(), self.copies))
        masked = rng.random((len(molecule.input_ids) - 2, self.copies)) < self.settings["mask_ratio"]
        hidden = np.repeat(masked.all(axis=1), self.copies)
        labels = np.full_like(ids, IGNORED)
        labels[1:-1][hidden] = ids[1:-1][hidden]
        ids[1:-1][masked.ravel()] = self.config.mask_token_id
        return ids, labels

    def losses(self, model: ExLMPreTrainedModel, batch: Batch) -> dict[str, Tensor]:
        """Return the mean cross-entropy at the labels, 0 without any, and the share of them that is found."""
        masked = batch["input_ids"] == self.config.mask_token_id
        counts = masked.sum(1)
        scores = model(batch["input_ids"]).logits[:, 1:]  # of the masks, then [SEP]; [CLS] stood first
        real = torch.arange(scores.shape[1], device=masked.device) < counts.unsqueeze(-1)
        scores, labels = scores[real], batch["labels"][masked]  # both in order of molecules and places
        told = labels != IGNORED
        total = F.cross_entropy(scores[told].float(), labels[told], reduction="sum")
        found = (scores[told].argmax(-1) == labels[told]).sum()
        return {"loss": total / told.sum().clamp_min(1), "hidden_accuracy": found / told.sum().clamp_min(1)}


def repeated_mlm(copies: int) -> str:
    """Make the objective with so many copies known to `smilex.pretrain`, and return its name."""
    name = f"repeated_mlm_{copies}"
    OBJECTIVES.setdefault(name, type(name, (RepeatedMLM,), {"name": name, "copies": copies}))
    return name


class Key(NamedTuple):
    """Which cell."""

    copies: int
    p: float
    seed: int


def settings_of(_: Key, arguments: Namespace) -> Settings:
    """Whatever the figures of a cell depend on besides what its key says."""
    return {**encoder_settings(arguments.corpus, arguments.model, arguments.datasets), "epochs": arguments.epochs}


def make(key: Key, arguments: Namespace) -> Cell:
    """Train an encoder and measure it."""
    objective = repeated_mlm(key.copies)
    config = new_config(arguments.model)
    run = pretrained(
        arguments.work_dir,
        arguments.corpus,
        objective,
        model=config,
        mask_ratio=key.p,
        tokens_per_batch=tokens_per_batch(objective, config, open_corpus(arguments.corpus)),
        epochs=arguments.epochs,
        seed=key.seed,
    )
    return {
        "hidden": key.p**key.copies,
        **training_figures(run),
        **probe_figures(run.output_dir, arguments.datasets, copies=key.copies),
    }


FIGURES = (
    Column("unreal, p", ("p",), None, 2),
    Column("hidden, p^k", ("hidden",), None, 2),
    Column("accuracy at hidden tokens", ("stages", 0, "held_out", "hidden_accuracy")),
    Column("seconds", ("seconds",), None, 0),
)
NOTE = """Mean ± standard deviation over seeds. k copies of each token, each masked with probability p; a token is
hidden where all its copies are masked. Vectors of the probes are means over all copies. Seeds were trained on different
computers: their seconds cannot be compared.
"""


def grouped(cells: Cells) -> dict[tuple[int, float], list[Cell]]:
    """Sort the cells by their place in the grid: those of a probability beside each other."""
    rows: dict[tuple[int, float], list[Cell]] = {}
    for key in sorted(cells, key=lambda key: (key.p, key.copies, key.seed)):
        rows.setdefault((key.copies, key.p), []).append(cells[key])
    return rows


def lines() -> dict[str, list[tuple[int, float]]]:
    """Lines of the plot: p^k fixed, then each p that several numbers of copies have."""
    fixed = {f"p = {p:.2f}": [place for place in GRID if place[1] == p] for p in PROBABILITIES[1:]}
    return {f"p^k = {HIDDEN}": list(zip(COPIES, PROBABILITIES, strict=True)), **fixed}


def report(cells: Cells, results: Path) -> str:
    """Write the table and the plot, and return the table."""
    places = grouped(cells)
    rows = {f"k = {copies}, p = {p:.2f}": own for (copies, p), own in places.items()}
    tables, test = probe_tables("copies and mask", rows, FIGURES, cells.values())
    text = tables + NOTE
    write_text(results / "corrupted_semantics.md", text)
    plot(places, test, results / "corrupted_semantics.png")
    return text


def plot(places: Mapping[tuple[int, float], list[Cell]], columns: Sequence[Column], path: Path) -> None:
    """Draw a panel for each probe: its figure against the copies, with p^k fixed and with p fixed."""
    figure = Figure(figsize=(2.4 + 2.6 * max(1, len(columns)), 3.2), layout="constrained")
    panels: Iterable[Any] = figure.subplots(1, max(1, len(columns)), squeeze=False).flat
    for column, axes in zip(columns, panels, strict=False):
        for colour, (label, line) in zip(COLOURS, lines().items(), strict=False):
            found = {place[0]: values(places.get(place, []), column.path) for place in line}
            points = {copies: own for copies, own in found.items() if own}
            axes.errorbar(
                list(points),
                [statistics.fmean(own) for own in points.values()],
                [spread(own) for own in points.values()],
                fmt="o-",
                color=colour,
                capsize=2,
                label=label,
            )
        axes.set_xticks(COPIES)
        axes.set_xlabel("copies, k")
        axes.set_title(column.heading, fontsize="medium")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(*labels, loc="outside upper center", ncols=len(COLOURS), frameon=False)
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing; write and print the table, and draw the plot."""
    parser = encoder_arguments(__doc__, "corrupted_semantics")
    parser.add_argument("--copies", nargs="+", type=int, choices=COPIES, default=COPIES, help="columns of the grid")
    chosen = parser.parse_args(arguments)
    board = Board(RESULTS / "corrupted_semantics.json", chosen.work_dir, Key, lambda key: key)
    if not chosen.report_only:
        wanted = [Key(*place, seed) for seed in range(chosen.seeds) for place in GRID if place[0] in chosen.copies]
        run_cells(wanted, lambda key: settings_of(key, chosen), lambda key: make(key, chosen), board, chosen.budget)
    print(report(board.cells(), RESULTS))


if __name__ == "__main__":
    main()
