"""Plots of training and of predictions, drawn to files without a display.

Figures are made with matplotlib's object interface, so that no global state and no window system is involved.
Colours are from the Okabe-Ito palette, which colour-blind readers can tell apart.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_auc_score, roc_curve

from smilex.errors import SmilexError
from smilex.metrics import regression_metrics
from smilex.writing import whole_file

_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#8A8A8A"
_CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A8A")
_MAX_CURVES = len(_CYCLE)
_DPI = 200
_BOX = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 2}


def plot_loss(rows: Iterable[Mapping[str, Any]], path: str | os.PathLike[str]) -> Path:
    """Plot training and held-out loss over steps.

    Parameters
    ----------
    rows : iterable of dict
        Lines of metrics.jsonl: ``{"step": 10, "loss": 3.2}`` and ``{"step": 10, "heldout_loss": 3.0}``; other keys
        are ignored.
    path : path
        File to write (.png, .svg or .pdf).

    Returns
    -------
    Path
        The file.

    Raises
    ------
    SmilexError
        If no row has a loss, or the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plot_loss([{"step": 1, "loss": 3.2}, {"step": 2, "loss": 2.9}], Path(folder) / "loss.png").name
    'loss.png'
    """
    rows = list(rows)
    figure, axes = _figure(4.8, 3.2)
    drawn = False
    for key, label, colour, marker in (
        ("loss", "training", _BLUE, ""),
        ("heldout_loss", "held out", _ORANGE, "o"),
    ):
        points = sorted((row["step"], row[key]) for row in rows if row.get(key) is not None)
        if points:
            # A lone point makes no line.
            steps, losses = zip(*points, strict=True)
            axes.plot(
                steps,
                losses,
                color=colour,
                marker=marker if len(points) > 1 else "o",
                markersize=3.5,
                linewidth=1.4,
                label=label,
            )
            drawn = True
    if not drawn:
        raise SmilexError("no loss to plot; give rows with 'step' and 'loss' or 'heldout_loss'")
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.grid(visible=True, axis="y", color="#E6E6E6", linewidth=0.6)
    axes.legend(frameon=False)
    return _save(figure, path)


def plot_parity(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    task_name: str,
    path: str | os.PathLike[str],
    *,
    y_std: ArrayLike | None = None,
    unit: str | None = None,
) -> Path:
    """Plot predicted against measured values, with RMSE and R² in the corner.

    Parameters
    ----------
    y_true, y_pred : float arrays of shape (n,)
        Measured values, NaN where missing, and predictions. Points without a label are left out.
    task_name : str
        What was measured; the title.
    path : path
        File to write (.png, .svg or .pdf).
    y_std : float array of shape (n,), optional
        Standard deviation of each prediction, drawn as error bars.
    unit : str, optional
        Unit of the values, for the axes.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    SmilexError
        If no label is present, a labelled point has no finite prediction, or the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plot_parity([1.0, 2.0], [1.2, 1.9], "logS", Path(folder) / "parity.png", unit="log mol/L").name
    'parity.png'
    """
    true, pred = np.asarray(y_true, dtype=np.float64), np.asarray(y_pred, dtype=np.float64)
    scores = regression_metrics(true, pred)
    present = ~np.isnan(true)
    true, pred = true[present], pred[present]
    figure, axes = _figure(3.8, 3.8)
    if y_std is not None:
        spread = np.asarray(y_std, dtype=np.float64)[present]
        axes.errorbar(true, pred, yerr=spread, fmt="none", ecolor=_GREY, elinewidth=0.6, alpha=0.35, zorder=1)
    size = float(np.clip(1500 / len(true), 4, 20))
    axes.scatter(true, pred, s=size, color=_BLUE, alpha=0.55, linewidths=0, zorder=2)
    low, high = min(true.min(), pred.min()), max(true.max(), pred.max())
    margin = 0.05 * (high - low) or 1.0
    limits = (low - margin, high + margin)
    axes.plot(limits, limits, color=_GREY, linewidth=1, linestyle="--", zorder=0)
    axes.set(xlim=limits, ylim=limits, aspect="equal", title=task_name)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=5))
    suffix = f" ({unit})" if unit else ""
    axes.set_xlabel(f"measured{suffix}")
    axes.set_ylabel(f"predicted{suffix}")
    r2 = "undefined" if scores["r2"] is None else f"{scores['r2']:.2f}"
    text = f"RMSE = {scores['rmse']:.3g}{f' {unit}' if unit else ''}\nR² = {r2}\nn = {len(true)}"
    axes.text(0.04, 0.96, text, transform=axes.transAxes, va="top", fontsize=8, bbox=_BOX)
    return _save(figure, path)


def plot_roc(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    task_names: Sequence[str],
    path: str | os.PathLike[str],
) -> Path:
    """Plot the receiver operating characteristic of each task, with its area in the legend.

    Parameters
    ----------
    y_true : float array of shape (n, tasks)
        Classes 0 and 1, NaN where missing. Tasks with one class only have no curve.
    y_prob : float array of shape (n, tasks)
        Predicted probability of class 1.
    task_names : sequence of str
        One name a task. More than 8 are drawn thin, in one colour, with their mean area.
    path : path
        File to write (.png, .svg or .pdf).

    Returns
    -------
    Path
        The file.

    Raises
    ------
    SmilexError
        If no task has both classes, a labelled point has no finite prediction, or the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plot_roc([[0], [1], [1]], [[0.2], [0.6], [0.9]], ["toxic"], Path(folder) / "roc.png").name
    'roc.png'
    """
    curves = _roc_curves(np.asarray(y_true, dtype=np.float64), np.asarray(y_prob, dtype=np.float64), task_names)
    figure, axes = _figure(3.8, 3.8)
    axes.plot([0, 1], [0, 1], color=_GREY, linewidth=1, linestyle="--", zorder=0)
    few = len(curves) <= _MAX_CURVES
    for index, (task, area, false_rate, true_rate) in enumerate(curves):
        style: dict[str, Any] = {"color": _BLUE, "linewidth": 0.6, "alpha": max(0.1, 8 / len(curves))}
        if few:
            style = {"color": _CYCLE[index], "linewidth": 1.4, "label": f"{_short(task)}, AUC {area:.3f}"}
        axes.plot(false_rate, true_rate, **style)
    if not few:
        mean = np.mean([area for _, area, _, _ in curves])
        axes.plot([], [], color=_BLUE, linewidth=1, label=f"{len(curves)} tasks, mean AUC {mean:.3f}")
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    axes.legend(loc="lower right", fontsize=7, frameon=False)
    return _save(figure, path)


_Curve = tuple[str, float, NDArray[np.float64], NDArray[np.float64]]


def _roc_curves(true: NDArray[np.float64], prob: NDArray[np.float64], task_names: Sequence[str]) -> list[_Curve]:
    """Return name, area, false and true positive rates of each task that has both classes."""
    if true.ndim != 2 or true.shape != prob.shape or true.shape[1] != len(task_names):
        raise SmilexError(f"{len(task_names)} tasks, but labels are {true.shape} and predictions {prob.shape}")
    curves = []
    for task, labels, predicted in zip(task_names, true.T, prob.T, strict=True):
        present = ~np.isnan(labels)
        if not np.isfinite(predicted[present]).all():
            raise SmilexError(f"task {task!r} has labelled rows without a finite prediction; leave them out")
        if len(np.unique(labels[present])) == 2:
            false_rate, true_rate, _ = roc_curve(labels[present], predicted[present])
            curves.append((task, float(roc_auc_score(labels[present], predicted[present])), false_rate, true_rate))
    if not curves:
        raise SmilexError("no task has both classes; there is no ROC curve to plot")
    return curves


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of a size in inches, with one pair of axes."""
    figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.title.set_fontsize(10)
    return figure, axes


def _save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    with whole_file(path) as partial:
        try:
            figure.savefig(partial, format=path.suffix[1:] or "png")
        except ValueError as error:
            raise SmilexError(f"cannot write {path}: {error}") from error
    return path
