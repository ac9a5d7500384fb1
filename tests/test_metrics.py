import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import spearmanr
from sklearn import metrics as sk

from smilex.errors import SmilexError
from smilex.metrics import (
    CLASSIFICATION_METRICS,
    REGRESSION_METRICS,
    calibration_error,
    classification_metrics,
    evaluate,
    regression_metrics,
    summarize,
)

NAN = float("nan")


def test_regression_by_hand():
    scores = regression_metrics([1, 2, 3, 4], [1, 2, 3, 8])
    assert scores["rmse"] == pytest.approx(2.0)
    assert scores["mae"] == pytest.approx(1.0)
    assert scores["r2"] == pytest.approx(1 - 16 / 5)
    assert scores["spearman"] == pytest.approx(1.0)


def test_classification_by_hand():
    # One of four pairs of a negative and a positive is in the wrong order; 0.5 counts as class 1.
    scores = classification_metrics([0, 0, 1, 1], [0.1, 0.5, 0.4, 0.9])
    assert scores == pytest.approx(
        {"roc_auc": 0.75, "prc_auc": 5 / 6, "accuracy": 0.5, "f1": 0.5, "mcc": 0.0, "ece": (0.1 + 0.5 + 0.6 + 0.1) / 4}
    )


def test_calibration_error_by_hand():
    # Bins of 1/15: (0, 1/15] has 0.01 and 0.05 with one of class 1; (2/15, 3/15] has 0.2, its upper edge, and 0.14;
    # (14/15, 1] has 0.95 and 1.0, both of class 1.
    prob = [0.01, 0.05, 0.2, 0.14, 0.95, 1.0, 0.3]
    true = [0, 1, 0, 0, 1, 1, NAN]
    expected = (2 * abs(0.03 - 0.5) + 2 * abs(0.17 - 0) + 2 * abs(0.975 - 1)) / 6
    assert calibration_error(true, prob) == pytest.approx(expected)
    # 0 belongs to the first bin.
    assert calibration_error([0, 1], [0.0, 0.04]) == pytest.approx(abs(0.02 - 0.5))


def test_calibration_error_of_extremes():
    assert calibration_error([0, 1, 1], [0.0, 1.0, 1.0]) == 0.0
    assert calibration_error([1, 0, 0], [0.0, 1.0, 1.0]) == 1.0


def test_calibration_error_sees_what_ranking_does_not():
    rng = np.random.default_rng(0)
    prob = rng.random(20_000)
    true = (rng.random(20_000) < prob).astype(float)
    honest = classification_metrics(true, prob)
    # Squeezing towards the extremes keeps the order, so the ROC-AUC, and makes the promises wrong.
    boastful = classification_metrics(true, prob**4 / (prob**4 + (1 - prob) ** 4))
    assert honest["roc_auc"] == pytest.approx(boastful["roc_auc"])
    assert honest["ece"] < 0.02
    assert boastful["ece"] > 0.1


# Probabilities off the edges of the bins, where rounding would decide.
OFF_EDGES = st.integers(1, 1499).filter(lambda number: number % 100 != 0)


@given(st.lists(st.tuples(st.integers(0, 1), OFF_EDGES), min_size=1, max_size=60))
def test_calibration_error_equals_its_definition(rows):
    total = 0.0
    for number in range(15):
        inside = [(label, k / 1500) for label, k in rows if k // 100 == number]
        if inside:
            labels, probabilities = np.mean(inside, axis=0)
            total += len(inside) / len(rows) * abs(probabilities - labels)
    true, prob = zip(*rows, strict=True)
    assert calibration_error(true, np.array(prob) / 1500) == pytest.approx(total)


@pytest.mark.parametrize("prob", [[0.5, 1.1], [-0.1, 0.5]])
def test_scores_that_are_no_probabilities(prob):
    with pytest.raises(SmilexError, match="probabilities must lie between 0 and 1"):
        classification_metrics([0, 1], prob)


@pytest.mark.parametrize("seed", range(5))
def test_regression_equals_sklearn_and_scipy_on_the_labelled_rows(seed):
    rng = np.random.default_rng(seed)
    true = rng.normal(size=60).round(1)  # ties
    pred = (true + rng.normal(size=60)).round(1)
    gaps = rng.random(60) < 0.3
    scores = regression_metrics(np.where(gaps, NAN, true), np.where(gaps & (rng.random(60) < 0.5), NAN, pred))
    true, pred = true[~gaps], pred[~gaps]
    assert scores == pytest.approx(
        {
            "rmse": math.sqrt(sk.mean_squared_error(true, pred)),
            "mae": sk.mean_absolute_error(true, pred),
            "r2": sk.r2_score(true, pred),
            "spearman": spearmanr(true, pred).statistic,
        }
    )


@pytest.mark.parametrize("seed", range(5))
def test_classification_equals_sklearn_on_the_labelled_rows(seed):
    rng = np.random.default_rng(seed)
    true = (rng.random(80) < 0.3).astype(float)
    prob = np.clip(0.3 * true + 0.8 * rng.random(80), 0, 1).round(2)
    gaps = rng.random(80) < 0.3
    scores = classification_metrics(np.where(gaps, NAN, true), prob)
    true, prob = true[~gaps], prob[~gaps]
    assert scores == pytest.approx(
        {
            "roc_auc": sk.roc_auc_score(true, prob),
            "prc_auc": sk.average_precision_score(true, prob),
            "accuracy": np.mean((prob >= 0.5) == true),
            "f1": sk.f1_score(true, prob >= 0.5),
            "mcc": sk.matthews_corrcoef(true, prob >= 0.5),
            "ece": calibration_error(true, prob),
        }
    )


@given(arrays(float, st.integers(1, 12), elements=st.floats(-1e3, 1e3)), st.integers(0, 2**32 - 1))
def test_regression_scores_are_finite_or_none(true, seed):
    pred = np.random.default_rng(seed).normal(size=true.size).round(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = regression_metrics(true, pred)
    assert all(value is None or math.isfinite(value) for value in scores.values())
    assert scores["mae"] <= scores["rmse"] * (1 + 1e-9) + 1e-100  # tiny squares underflow


def test_what_is_undefined_is_none():
    assert regression_metrics([2.0], [1.0]) == {"rmse": 1.0, "mae": 1.0, "r2": None, "spearman": None}
    assert regression_metrics([2.0, 2.0], [1.0, 3.0])["r2"] is None
    constant = regression_metrics([1.0, 3.0], [2.0, 2.0])
    assert (constant["r2"], constant["spearman"]) == (0.0, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = classification_metrics([1, 1, 1], [0.2, 0.9, 0.7])
    assert (scores["roc_auc"], scores["prc_auc"], scores["mcc"]) == (None, None, 0.0)
    assert scores["accuracy"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("metric", [regression_metrics, classification_metrics])
@pytest.mark.parametrize(
    ("true", "pred", "message"),
    [
        ([0, 1], [0.5], "must be one row of the same length"),
        ([[0, 1]], [[0.5, 0.5]], "must be one row of the same length"),
        ([NAN, NAN], [0.5, 0.5], "no label to compare with"),
        ([], [], "no label to compare with"),
        ([0, 1, NAN], [NAN, math.inf, NAN], "2 labelled rows have no finite prediction"),
    ],
)
def test_scores_that_cannot_be_computed(metric, true, pred, message):
    with pytest.raises(SmilexError, match=message):
        metric(true, pred)


def test_classes_other_than_0_and_1():
    with pytest.raises(SmilexError, match="classes must be 0 and 1"):
        classification_metrics([0, 2], [0.1, 0.9])


def test_evaluate_scores_each_task_and_skips_those_with_one_class():
    targets = np.array([[0, 1, NAN, 0], [1, 1, NAN, NAN], [1, NAN, NAN, 1], [0, 1, NAN, 1]])
    prob = np.array([[0.1, 0.5, NAN, 0.3], [0.8, 0.5, 0.1, NAN], [0.6, 0.5, 0.2, 0.2], [0.7, 0.5, 0.3, 0.9]])
    result = evaluate("classification", targets, prob, ["a", "b", "c", "d"])
    assert result["skipped_tasks"] == ["b", "c"]
    assert list(result["tasks"]) == ["a", "d"]
    assert result["tasks"]["a"] == classification_metrics(targets[:, 0], prob[:, 0])
    assert result["tasks"]["d"] == classification_metrics([0, 1, 1], [0.3, 0.2, 0.9])
    for name in CLASSIFICATION_METRICS:
        values = [scores[name] for scores in result["tasks"].values()]
        assert result["mean"][name] == pytest.approx(np.mean(values))
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_evaluate_regression():
    targets = np.array([[1.0, 5.0, 2.0, NAN], [2.0, NAN, 2.0, NAN], [3.0, NAN, 2.0, NAN]])
    predicted = np.array([[1.0, 4.0, 2, 0], [2.0, 4.0, 2, 0], [4.0, 4.0, 3, 0]])
    result = evaluate("regression", targets, predicted, ["a", "b", "c", "d"])
    assert result["skipped_tasks"] == ["d"]
    assert result["tasks"]["a"] == regression_metrics([1, 2, 3], [1, 2, 4])
    # Errors are defined for one label, or constant ones; correlations are not.
    assert result["tasks"]["b"] == {"rmse": 1.0, "mae": 1.0, "r2": None, "spearman": None}
    assert result["tasks"]["c"]["mae"] == pytest.approx(1 / 3)
    assert result["mean"]["r2"] == result["tasks"]["a"]["r2"]
    assert result["mean"]["mae"] == pytest.approx((1 / 3 + 1 + 1 / 3) / 3)


def test_evaluate_without_a_scorable_task_has_no_mean():
    result = evaluate("regression", [[NAN]], [[2.0]], ["a"])
    assert result == {"mean": dict.fromkeys(REGRESSION_METRICS), "tasks": {}, "skipped_tasks": ["a"]}


def test_mean_leaves_out_undefined_values():
    # Task b has constant predictions, so no rank correlation.
    targets = np.array([[1.0, 1.0], [2.0, 2.0]])
    result = evaluate("regression", targets, np.array([[1.0, 1.0], [3.0, 1.0]]), ["a", "b"])
    assert result["tasks"]["b"]["spearman"] is None
    assert result["mean"]["spearman"] == pytest.approx(1.0)
    assert result["mean"]["mae"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("kind", "shape", "names", "message"),
    [
        ("ranking", (2, 1), ["a"], "unknown kind of task 'ranking'"),
        ("regression", (2, 2), ["a", "b"], r"labels are \(2, 1\) and predictions \(2, 2\)"),
        ("regression", (2, 1), ["a", "b"], "2 tasks, but"),
        ("regression", (2,), ["a"], "1 tasks, but"),
    ],
)
def test_evaluate_refuses_shapes_that_disagree(kind, shape, names, message):
    with pytest.raises(SmilexError, match=message):
        evaluate(kind, [[1.0], [2.0]], np.zeros(shape), names)


def test_evaluate_refuses_missing_predictions_of_labelled_rows():
    with pytest.raises(SmilexError, match="1 labelled rows have no finite prediction; leave out rows"):
        evaluate("regression", [[1.0], [2.0]], [[1.0], [NAN]], ["a"])


def test_summary_over_seeds():
    runs = [{"rmse": 0.5, "r2": 0.1}, {"rmse": 0.7, "r2": None}, {"rmse": 0.9, "r2": 0.3}]
    summary = summarize(runs)
    assert summary["rmse"] == pytest.approx({"mean": 0.7, "sd": 0.2, "n": 3})
    assert summary["r2"] == pytest.approx({"mean": 0.2, "sd": np.std([0.1, 0.3], ddof=1), "n": 2})
    assert summarize(runs[:1]) == {"rmse": {"mean": 0.5, "sd": None, "n": 1}, "r2": {"mean": 0.1, "sd": None, "n": 1}}
    assert summarize([{"r2": None}] * 2) == {"r2": {"mean": None, "sd": None, "n": 0}}


def test_summary_of_nothing_and_of_different_metrics():
    with pytest.raises(SmilexError, match="no runs to summarize"):
        summarize([])
    with pytest.raises(SmilexError, match="different metrics"):
        summarize([{"rmse": 1.0}, {"roc_auc": 1.0}])
