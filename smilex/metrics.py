"""How well predictions agree with measurements, task by task."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn import metrics as sk

from smilex.data.properties import Kind
from smilex.errors import SmilexError

Scores = dict[str, float | None]

REGRESSION_METRICS = ("rmse", "mae", "r2", "spearman")
CLASSIFICATION_METRICS = ("roc_auc", "prc_auc", "accuracy", "f1", "mcc", "ece")

ECE_BINS = 15


def regression_metrics(y_true: ArrayLike, y_pred: ArrayLike) -> Scores:
    """Compare predicted with measured values of one task.

    Parameters
    ----------
    y_true, y_pred : float arrays of shape (n,)
        Measured values, NaN where missing, and predictions in the same units.

    Returns
    -------
    dict
        rmse and mae in the units of the task, r2 (coefficient of determination) and spearman (rank correlation).
        r2 is None with fewer than 2 labels or constant labels, spearman also with constant predictions.

    Raises
    ------
    SmilexError
        If lengths differ, no label is present, or a labelled row has no finite prediction.

    Examples
    --------
    >>> regression_metrics([1.0, 2.0, 3.0, float("nan")], [1.0, 2.0, 4.0, 0.0])["r2"]
    0.5
    """
    true, pred = _labelled(y_true, y_pred)
    varied = len(true) > 1 and np.ptp(true) > 0
    ranks = pd.DataFrame({"true": true, "pred": pred}).rank()
    return {
        "rmse": float(sk.root_mean_squared_error(true, pred)),
        "mae": float(sk.mean_absolute_error(true, pred)),
        "r2": _r2(true, pred) if varied else None,
        "spearman": float(ranks["true"].corr(ranks["pred"])) if varied and np.ptp(pred) > 0 else None,
    }


def classification_metrics(y_true: ArrayLike, y_prob: ArrayLike) -> Scores:
    """Compare predicted probabilities with the classes of one binary task.

    Parameters
    ----------
    y_true : float array of shape (n,)
        Classes 0 and 1, NaN where missing.
    y_prob : float array of shape (n,)
        Predicted probability of class 1.

    Returns
    -------
    dict
        roc_auc, prc_auc (average precision; both None where only one class is present), accuracy, f1 (of class 1) and
        mcc (Matthews correlation), the last three with class 1 predicted at a probability of 0.5 and more; and ece,
        the expected calibration error (see `calibration_error`).

    Raises
    ------
    SmilexError
        If lengths differ, no label is present, a label is neither 0 nor 1, or a labelled row has no probability
        between 0 and 1.

    Examples
    --------
    >>> scores = classification_metrics([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> scores["roc_auc"], scores["accuracy"]
    (0.75, 0.75)
    """
    true, prob = _labelled(y_true, y_prob)
    if not np.isin(true, (0, 1)).all():
        raise SmilexError("classes must be 0 and 1, or NaN where missing")
    called = (prob >= 0.5).astype(np.float64)
    both = len(np.unique(true)) == 2
    return {
        "roc_auc": float(sk.roc_auc_score(true, prob)) if both else None,
        "prc_auc": float(sk.average_precision_score(true, prob)) if both else None,
        "accuracy": float(sk.accuracy_score(true, called)),
        "f1": float(sk.f1_score(true, called, zero_division=0)),
        "mcc": float(sk.matthews_corrcoef(true, called)),
        "ece": calibration_error(true, prob),
    }


def calibration_error(y_true: ArrayLike, y_prob: ArrayLike) -> float:
    """Return how far predicted probabilities are from the share of class 1 that they promise.

    The expected calibration error (ECE): rows fall into 15 bins of equal width by their probability of class 1; the
    gap between the mean probability and the share of class 1 of each bin is averaged, weighted by its rows. Guo et
    al. [1]_ bin the probability of the predicted class; for two classes that of class 1 tells more, as in [2]_.

    Parameters
    ----------
    y_true : float array of shape (n,)
        Classes 0 and 1, NaN where missing.
    y_prob : float array of shape (n,)
        Predicted probability of class 1.

    Returns
    -------
    float
        From 0, well calibrated, to 1.

    Raises
    ------
    SmilexError
        If lengths differ, no label is present, or a labelled row has no probability between 0 and 1.

    References
    ----------
    .. [1] Guo et al., On calibration of modern neural networks, ICML 2017. arXiv:1706.04599
    .. [2] Naeini, Cooper and Hauskrecht, Obtaining well calibrated probabilities using Bayesian binning, AAAI 2015,
       2901. doi:10.1609/aaai.v29i1.9602

    Examples
    --------
    >>> calibration_error([1, 0, 1, 1], [0.75, 0.75, 0.75, 0.75])
    0.0
    >>> calibration_error([0, 0, 1, 1], [0.25, 0.25, 1.0, 1.0])
    0.125
    """
    true, prob = _labelled(y_true, y_prob)
    if ((prob < -1e-6) | (prob > 1 + 1e-6)).any():  # a mean over models may round past the ends
        raise SmilexError("probabilities must lie between 0 and 1; give those of class 1, not scores or logits")
    bins = np.clip(np.ceil(prob * ECE_BINS), 1, ECE_BINS).astype(np.int64)  # a bin holds its upper edge
    gaps = np.bincount(bins, weights=prob - true)
    return float(np.abs(gaps).sum() / len(true))


_METRICS: dict[str, tuple[Callable[[ArrayLike, ArrayLike], Scores], tuple[str, ...]]] = {
    "regression": (regression_metrics, REGRESSION_METRICS),
    "classification": (classification_metrics, CLASSIFICATION_METRICS),
}


def evaluate(
    kind: Kind,
    targets: ArrayLike,
    predictions: ArrayLike,
    task_names: Sequence[str],
) -> dict[str, Any]:
    """Score predictions of several tasks, each on the rows where it has a label.

    Parameters
    ----------
    kind : {"regression", "classification"}
        What the tasks are.
    targets : float array of shape (n, tasks)
        Labels, NaN where missing.
    predictions : float array of shape (n, tasks)
        Predicted values, or probabilities of class 1.
    task_names : sequence of str
        One name a task.

    Returns
    -------
    dict
        ``{"mean": {metric: value}, "tasks": {name: {metric: value}}, "skipped_tasks": [names]}``, fit for JSON.
        A task is skipped when it has no label here, or one class only; the mean is over the others.
        Values are None where undefined.

    Raises
    ------
    SmilexError
        If the shapes disagree, or a labelled row has no finite prediction.

    Examples
    --------
    >>> result = evaluate("classification", [[0, 1], [1, 1]], [[0.2, 0.9], [0.7, 0.8]], ["a", "b"])
    >>> result["mean"]["roc_auc"], result["skipped_tasks"]
    (1.0, ['b'])
    """
    if kind not in _METRICS:
        raise SmilexError(f"unknown kind of task {kind!r}; choose 'regression' or 'classification'")
    score, names = _METRICS[kind]
    true = np.asarray(targets, dtype=np.float64)
    pred = np.asarray(predictions, dtype=np.float64)
    if true.ndim != 2 or true.shape != pred.shape or true.shape[1] != len(task_names):
        raise SmilexError(f"{len(task_names)} tasks, but labels are {true.shape} and predictions {pred.shape}")
    needed = 2 if kind == "classification" else 1
    tasks: dict[str, Scores] = {}
    skipped: list[str] = []
    for task, labels, predicted in zip(task_names, true.T, pred.T, strict=True):
        if len(np.unique(labels[~np.isnan(labels)])) < needed:
            skipped.append(task)
        else:
            tasks[task] = score(labels, predicted)
    mean = {name: _mean([scores[name] for scores in tasks.values()]) for name in names}
    return {"mean": mean, "tasks": tasks, "skipped_tasks": skipped}


def summarize(runs: Sequence[Mapping[str, float | None]]) -> dict[str, dict[str, float | int | None]]:
    """Return mean and spread of each metric over runs that differ in their seed.

    Parameters
    ----------
    runs : sequence of dict
        Metrics of each run, such as the "mean" of `evaluate`; all with the same keys.

    Returns
    -------
    dict
        ``{metric: {"mean": m, "sd": s, "n": runs that have a value}}``; sd is the sample standard deviation
        (n - 1), None for fewer than 2 values.

    Raises
    ------
    SmilexError
        If there is no run, or the runs have different metrics.

    Examples
    --------
    >>> summarize([{"rmse": 1.0}, {"rmse": 3.0}])
    {'rmse': {'mean': 2.0, 'sd': 1.4142135623730951, 'n': 2}}
    """
    if not runs:
        raise SmilexError("no runs to summarize; give the metrics of at least one")
    if any(run.keys() != runs[0].keys() for run in runs):
        raise SmilexError("the runs have different metrics; summarize runs of one kind of task")
    summary: dict[str, dict[str, float | int | None]] = {}
    for name in runs[0]:
        values = [value for run in runs if (value := run[name]) is not None]
        sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
        summary[name] = {"mean": _mean(values), "sd": sd, "n": len(values)}
    return summary


def _r2(true: NDArray[np.float64], pred: NDArray[np.float64]) -> float | None:
    """Coefficient of determination; None where the labels vary by less than doubles can square."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        value = float(sk.r2_score(true, pred))
    return value if math.isfinite(value) else None


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return math.fsum(present) / len(present) if present else None


def _labelled(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return labels and predictions of the rows that have a label."""
    true = np.asarray(y_true, dtype=np.float64)
    pred = np.asarray(y_pred, dtype=np.float64)
    if true.ndim != 1 or true.shape != pred.shape:
        raise SmilexError(f"labels {true.shape} and predictions {pred.shape} must be one row of the same length")
    present = ~np.isnan(true)
    if not present.any():
        raise SmilexError("no label to compare with; give at least one")
    true, pred = true[present], pred[present]
    if not np.isfinite(pred).all():
        raise SmilexError(
            f"{int((~np.isfinite(pred)).sum())} labelled rows have no finite prediction; "
            "leave out rows whose SMILES is invalid"
        )
    return true, pred
