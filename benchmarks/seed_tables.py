"""Tables and plots of figures that several seeds gave: mean ± standard deviation, the best of each column bold."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00")  # Okabe and Ito's, for colour-blind readers

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
"""Name of a row → its cells, one a seed."""


class Column(NamedTuple):
    """A figure: its heading, where it stands in a cell, which end is better (max, min or neither) and its digits."""

    heading: str
    path: tuple[Any, ...]
    better: Callable[[Iterable[float]], float] | None = None
    digits: int = 3


def probe_columns(datasets: Iterable[str], cells: Iterable[Mapping[str, Any]], part: str) -> list[Column]:
    """Columns of the linear probes on one part, as far as a cell has them."""
    figures = {name: probe["figure"] for cell in cells for name, probe in cell["probe"].items()}
    words = {"roc_auc": ("ROC-AUC", max), "rmse": ("RMSE", min)}
    return [
        Column(f"{name} {words[figures[name]][0]}", ("probe", name, part), words[figures[name]][1])
        for name in datasets
        if name in figures
    ]


def values(cells: Iterable[Mapping[str, Any]], path: tuple[Any, ...]) -> list[float]:
    """Collect a figure from the cells that have it."""
    found = []
    for cell in cells:
        value: Any = cell
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError):
                value = None
                break
        if value is not None:
            found.append(float(value))
    return found


def spread(found: Sequence[float]) -> float:
    """Sample standard deviation; 0 for one value."""
    return statistics.stdev(found) if len(found) > 1 else 0.0


def markdown(first: str, rows: Rows, columns: Sequence[Column]) -> str:
    """Lay out a table; "–" marks what there is not, and the number of seeds stands behind the name of a row."""
    means = {
        column.heading: {
            name: round(statistics.fmean(found), column.digits)
            for name, cells in rows.items()
            if (found := values(cells, column.path))
        }
        for column in columns
    }
    lines = [f"| {first} | seeds | {' | '.join(column.heading for column in columns)} |"]
    lines.append("|---" * (len(columns) + 2) + "|")
    for name, cells in rows.items():
        shown = [name, str(len(cells))]
        for column in columns:
            found, of_all = values(cells, column.path), means[column.heading].values()
            text = f"{statistics.fmean(found):.{column.digits}f}" if found else "–"
            text += f" ± {spread(found):.{column.digits}f}" if len(found) > 1 else ""
            best = found and column.better and len(of_all) > 1
            shown.append(f"**{text}**" if best and means[column.heading][name] == column.better(of_all) else text)
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def probe_tables(
    first: str, rows: Rows, figures: Sequence[Column], cells: Iterable[Mapping[str, Any]]
) -> tuple[str, list[Column]]:
    """Lay out a table of figures and two of linear probes, and return the columns of the test part too."""
    cells = list(cells)
    datasets = list(dict.fromkeys(name for cell in cells for name in cell["probe"]))
    test, valid = (probe_columns(datasets, cells, part) for part in ("test", "valid"))
    text = f"{markdown(first, rows, figures)}\n"
    text += f"Linear probe, test part (scaffold split)\n\n{markdown(first, rows, test)}\n"
    text += f"Linear probe, validation part\n\n{markdown(first, rows, valid)}\n"
    return text, test


def plot(groups: Mapping[str, Rows], columns: Sequence[Column], path: Path) -> None:
    """Draw a panel a column: rows downwards, a point with its spread for each group."""
    names = list(dict.fromkeys(name for rows in groups.values() for name in rows))
    wide = min(4, max(1, len(columns)))
    deep = max(1, -(-len(columns) // wide))
    figure = Figure(figsize=(2.2 + 2.4 * wide, deep * (1.0 + 0.28 * len(names))), layout="constrained")
    panels = figure.subplots(deep, wide, sharey=True, squeeze=False).flat
    for column, axes in zip(columns, panels, strict=False):  # the columns first: panels that are left stay empty
        for index, (group, rows) in enumerate(groups.items()):
            shift = (index - (len(groups) - 1) / 2) * 0.25
            points = [(names.index(name) + shift, values(cells, column.path)) for name, cells in rows.items()]
            points = [(place, found) for place, found in points if found]
            axes.errorbar(
                [statistics.fmean(found) for _, found in points],
                [place for place, _ in points],
                xerr=[spread(found) for _, found in points],
                fmt="o",
                color=COLOURS[index],
                capsize=2,
                label=group,
            )
        arrow = {max: " →", min: " ←"}.get(column.better, "")
        axes.set_title(f"{column.heading}{arrow}", fontsize="medium")
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels:
        axes.set_axis_off()
    first = figure.axes[0]
    first.set_yticks(range(len(names)), names)
    first.set_ylim(max(1, len(names)) - 0.5, -0.5)
    if len(groups) > 1:
        figure.legend(*first.get_legend_handles_labels(), loc="outside upper center", ncols=len(groups), frameon=False)
    figure.savefig(path, dpi=150)
