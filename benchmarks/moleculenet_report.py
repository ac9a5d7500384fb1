"""The table and the plot of `moleculenet.py`."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

CLASSES = ("bace", "bbbp", "clintox", "sider", "tox21", "toxcast", "muv")
"""The seven sets whose mean is reported."""

VALUES = ("esol", "freesolv", "lipophilicity")

NAMES = {
    "ecfp4_rf": "ECFP4 + random forest",
    "chemprop": "chemprop",
    "scratch": "smilex from scratch",
    "mlm": "smilex MLM",
    "exlm": "smilex ExLM",
    "smilex_small": "smilex-small",
    "frozen_linear": "smilex-small frozen + linear",
    "frozen_rf": "smilex-small frozen + random forest",
}
HEADS = ("smilex_small", "frozen_linear", "frozen_rf")
"""Ways to use the same encoder, between which the validation part can choose."""

CHOSEN = "chosen"
COLUMNS = {**NAMES, CHOSEN: "whichever of the last three is best on validation"}
# Okabe and Ito's, for colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#8A8A8A", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#000000", "#F0E442")

Figures = dict[tuple[str, str], dict[int, float]]
"""(dataset, method) → seed → ROC-AUC or RMSE of the test part."""


def metric(dataset: str) -> str:
    """Return the figure that counts."""
    return "roc_auc" if dataset in CLASSES else "rmse"


def figures(cells: Iterable[dict[str, Any]]) -> Figures:
    """Collect the figures that the table shows."""
    cells = list(cells)
    test, valid = (_figures_of(part, cells) for part in ("test", "valid"))
    for dataset in (*CLASSES, *VALUES):
        better = max if dataset in CLASSES else min
        known = {head: valid[dataset, head] for head in HEADS if (dataset, head) in valid}
        if len(known) < 2:
            continue
        for seed in sorted(set.intersection(*map(set, known.values()))):
            judged = {head: run[seed] for head, run in known.items()}
            head = better(judged, key=judged.__getitem__)
            test.setdefault((dataset, CHOSEN), {})[seed] = test[dataset, head][seed]
    return test


def _figures_of(part: str, cells: Iterable[dict[str, Any]]) -> Figures:
    found: Figures = {}
    for cell in cells:
        value = cell[part]["mean"][metric(cell["dataset"])]
        if value is not None:
            found.setdefault((cell["dataset"], cell["method"]), {})[cell["seed"]] = value
    return found


def mean_of_classes(found: Figures, method: str) -> dict[int, float]:
    """For each seed that has all seven sets, the mean ROC-AUC."""
    rows = [found.get((dataset, method), {}) for dataset in CLASSES]
    seeds = sorted(set.intersection(*(set(row) for row in rows)))
    return {seed: statistics.fmean(row[seed] for row in rows) for seed in seeds}


def spread(values: Iterable[float]) -> float:
    """Sample standard deviation; 0 for one value."""
    known = list(values)
    return statistics.stdev(known) if len(known) > 1 else 0.0


def markdown(cells: Iterable[dict[str, Any]], split: str = "scaffold") -> str:
    """Lay out mean ± standard deviation over seeds, where there are several.

    The best of each row is bold; "–" marks what was not run.
    """
    cells = list(cells)
    found = figures(cells)
    rows = [_row(dataset, [found.get((dataset, name), {}) for name in COLUMNS], max) for dataset in CLASSES]
    rows.append(_row("mean of the seven", [mean_of_classes(found, name) for name in COLUMNS], max))
    rows += [_row(dataset, [found.get((dataset, name), {}) for name in COLUMNS], min) for dataset in VALUES]
    head = f"| test part, {split.replace('_', ' ')} split | {' | '.join(COLUMNS.values())} |"
    lines = [head, "|---" * (len(COLUMNS) + 1) + "|", *rows, ""]
    seeds = sorted({len(row) for row in found.values()})
    lines.append(
        "ROC-AUC (more is better) of the classes, mean over the tasks with both classes; RMSE (less is better) of "
        f"{', '.join(VALUES)}. Mean ± standard deviation over {' or '.join(map(str, seeds)) or 'no'} seeds; "
        "a linear head holds no chance. The last column chooses for each dataset and seed, without the test part, "
        "among those that were run."
    )
    left_out = {cell["dataset"]: cell["rows"]["left_out"] for cell in cells if cell["rows"]["left_out"]}
    skipped = {cell["dataset"]: cell["test"]["tasks_skipped"] for cell in cells if cell["test"]["tasks_skipped"]}
    lines += _count("Rows that belong to no part (RDKit refuses them, or too long)", left_out)
    lines += _count("Tasks of one class in the test part, left out of the mean", skipped)
    return "\n".join(lines) + "\n"


def _row(name: str, runs: Sequence[dict[int, float]], better: Callable[[list[float]], float]) -> str:
    means = [statistics.fmean(run.values()) if run else None for run in runs]
    known = [round(mean, 3) for mean in means if mean is not None]
    shown = []
    for run, mean in zip(runs, means, strict=True):
        text = "–" if mean is None else f"{mean:.3f}" + (f" ± {spread(run.values()):.3f}" if len(run) > 1 else "")
        best = mean is not None and len(known) > 1 and round(mean, 3) == better(known)
        shown.append(f"**{text}**" if best else text)
    return f"| {name} | {' | '.join(shown)} |"


def _count(what: str, counts: dict[str, int]) -> list[str]:
    shown = ", ".join(f"{name} {counts[name]}" for name in (*CLASSES, *VALUES) if name in counts)
    return [f"\n{what}: {shown}."] if shown else []


def plot(cells: Iterable[dict[str, Any]], path: Path) -> None:
    """Draw a point with its spread for each dataset and method: classes on the left, measured values on the right."""
    found = figures(cells)
    groups = {"ROC-AUC (more is better)": CLASSES, "RMSE (less is better)": VALUES}
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    panels = figure.subplots(1, 2, width_ratios=[len(names) for names in groups.values()])
    for axes, (label, names) in zip(panels, groups.items(), strict=True):
        for index, method in enumerate(COLUMNS):
            shift = (index - (len(COLUMNS) - 1) / 2) * 0.8 / len(COLUMNS)
            runs = {place + shift: found.get((name, method), {}) for place, name in enumerate(names)}
            points = [(place, list(run.values())) for place, run in runs.items() if run]
            axes.errorbar(
                [place for place, _ in points],
                [statistics.fmean(values) for _, values in points],
                [spread(values) for _, values in points],
                fmt="o",
                color=COLOURS[index],
                capsize=2,
                label=COLUMNS[method],
            )
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_ylabel(f"test {label}")
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    marks = panels[0].get_legend_handles_labels()
    figure.legend(*marks, loc="outside upper center", ncols=len(COLUMNS) // 3, frameon=False)
    figure.savefig(path, dpi=150)
