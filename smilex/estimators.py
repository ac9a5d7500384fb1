"""Scikit-learn estimators on the vectors of molecules, one estimator a task, saved without pickles."""

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from skops import io as skops_io

from smilex.data.properties import Kind
from smilex.errors import SmilexError
from smilex.writing import whole_file

STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0)
"""Regularisation strengths that a linear head chooses from: alpha of Ridge, 1/C of LogisticRegression."""

DEFAULT_STRENGTH = 1.0
"""What both estimators of scikit-learn take by default: for a task without validation labels."""

TREES = 300
"""Trees of a random forest."""

TRUSTED = ["sklearn.tree._tree.Tree"]
"""The one type beyond those that skops trusts of itself: its arrays are checked by `_check_tree`."""

ESTIMATORS = (DummyClassifier, DummyRegressor, LogisticRegression, Ridge, RandomForestClassifier, RandomForestRegressor)
"""What a saved head consists of, the linear ones behind a StandardScaler."""

# What zipfile, skops and scikit-learn raise for a file that is not what `save_estimators` wrote.
_DAMAGE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class TaskVectors:
    """Vectors and labels of one task, without the molecules whose label is missing.

    Parameters
    ----------
    kind : {"regression", "classification"}
        What the labels are.
    train_vectors, valid_vectors : float64 arrays of shape (n, d)
        Molecules of the training and of the validation part.
    train_labels, valid_labels : float64 arrays of shape (n,)
        Measured values, or 0 and 1.
    positive_weight : float
        What a label of class 1 counts, where one of class 0 counts 1.
    """

    kind: Kind
    train_vectors: NDArray[np.float64]
    train_labels: NDArray[np.float64]
    valid_vectors: NDArray[np.float64]
    valid_labels: NDArray[np.float64]
    positive_weight: float = 1.0

    @property
    def class_weight(self) -> dict[float, float] | None:
        """Weights of the classes as scikit-learn takes them."""
        # With weights of 1, a forest would draw its molecules in another way than without any.
        return None if self.positive_weight == 1 else {0.0: 1.0, 1.0: self.positive_weight}


def fit_linear(task: TaskVectors) -> Any:
    """Fit Ridge or LogisticRegression on standardised vectors; the validation part chooses how strongly it is held.

    Parameters
    ----------
    task : TaskVectors
        What to learn.

    Returns
    -------
    sklearn.pipeline.Pipeline
        The one with the least mean squared error or (weighted) cross-entropy on the validation part, among equals the
        most regularised; with `DEFAULT_STRENGTH` where that part has no label.

    Examples
    --------
    >>> vectors = np.arange(20.0)[:, None]
    >>> task = TaskVectors("regression", vectors[::2], 3 * vectors[::2, 0], vectors[1::2], 3 * vectors[1::2, 0])
    >>> fit_linear(task)[-1].alpha
    0.01
    """
    if not len(task.valid_labels):
        return _linear(task, DEFAULT_STRENGTH)
    fitted = [_linear(task, strength) for strength in reversed(STRENGTHS)]
    losses = [_validation_loss(task, answers(estimator, task.valid_vectors)) for estimator in fitted]
    return fitted[int(np.argmin(losses))]


def _linear(task: TaskVectors, strength: float) -> Any:
    if task.kind == "regression":
        estimator = Ridge(alpha=strength)
    else:
        estimator = LogisticRegression(C=1 / strength, class_weight=task.class_weight, max_iter=2000)
    return make_pipeline(StandardScaler(), estimator).fit(task.train_vectors, task.train_labels)


def _validation_loss(task: TaskVectors, predicted: NDArray[np.float64]) -> float:
    if task.kind == "regression":
        return float(mean_squared_error(task.valid_labels, predicted))
    weights = np.where(task.valid_labels == 1, task.positive_weight, 1.0)
    return float(log_loss(task.valid_labels, predicted, sample_weight=weights, labels=[0, 1]))


def fit_random_forest(task: TaskVectors, seed: int) -> Any:
    """Fit a random forest of `TREES` trees; it has no use for the validation part.

    Parameters
    ----------
    task : TaskVectors
        What to learn.
    seed : int
        Seed of the forest.

    Returns
    -------
    sklearn.ensemble.RandomForestRegressor or RandomForestClassifier
    """
    if task.kind == "regression":
        forest = RandomForestRegressor(TREES, random_state=seed, n_jobs=-1)
    else:
        forest = RandomForestClassifier(TREES, random_state=seed, n_jobs=-1, class_weight=task.class_weight)
    # Threads would add up the trees in any order, and the last digits of a prediction would depend on it.
    return forest.fit(task.train_vectors, task.train_labels).set_params(n_jobs=1)


HEADS = {"linear": lambda task, _: fit_linear(task), "random_forest": fit_random_forest}
"""Heads for a frozen encoder, by name."""


def fit_task(head: str, task: TaskVectors, seed: int) -> Any:
    """Fit the head of a task, or a constant where its training labels are all the same.

    A task without any training label gets what an untrained network would say: 0, or a probability of 0.5.

    Examples
    --------
    >>> task = TaskVectors("classification", np.eye(3), np.ones(3), np.eye(3), np.ones(3))
    >>> fit_task("linear", task, 0).predict_proba(np.eye(3)).tolist()
    [[1.0], [1.0], [1.0]]
    """
    labels = task.train_labels
    if len(np.unique(labels)) > 1:
        return HEADS[head](task, seed)
    if not len(labels):
        labels = np.array([0.0, 0.0 if task.kind == "regression" else 1.0])
    constant = DummyRegressor() if task.kind == "regression" else DummyClassifier()
    return constant.fit(np.zeros((len(labels), 1)), labels)


def predict_tasks(estimators: Sequence[Any], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Predict values, or probabilities of class 1, from vectors (n, d) → (n, tasks)."""
    return np.stack([answers(estimator, vectors) for estimator in estimators], axis=1)


def answers(estimator: Any, features: NDArray[Any]) -> NDArray[np.float64]:
    """Predict values, or probabilities of class 1, with an estimator of one task.

    Examples
    --------
    >>> answers(DummyClassifier().fit([[0]], [1.0]), np.zeros((2, 1))).tolist()  # it has seen one class only
    [1.0, 1.0]
    """
    if not hasattr(estimator, "predict_proba"):
        return estimator.predict(features)
    return estimator.predict_proba(features) @ estimator.classes_


def describe(estimator: Any) -> dict[str, Any]:
    """Say what an estimator is and, for a linear head, which regularisation was chosen.

    Examples
    --------
    >>> describe(make_pipeline(StandardScaler(), Ridge(alpha=10.0)))
    {'estimator': 'Ridge', 'alpha': 10.0}
    """
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    strength = {Ridge: "alpha", LogisticRegression: "C"}.get(type(last))
    return {"estimator": type(last).__name__} | ({} if strength is None else {strength: getattr(last, strength)})


def save_estimators(estimators: Sequence[Any], path: Path) -> None:
    """Write estimators to a file, whole or not at all and without pickles.

    Raises
    ------
    SmilexError
        If the system refuses to write.
    """
    with whole_file(path) as partial:
        skops_io.dump(list(estimators), partial, compression=zipfile.ZIP_DEFLATED)


def load_estimators(path: Path, tasks: int, width: int) -> list[Any]:
    """Read what `save_estimators` wrote.

    Parameters
    ----------
    path : Path
        The file.
    tasks : int
        Estimators that must be in it.
    width : int
        Width of the vectors that they take.

    Raises
    ------
    SmilexError
        If the file is damaged, or holds types or trees that no head of smilex has.
    """
    try:
        estimators = skops_io.load(path, trusted=TRUSTED)
        _check_estimators(estimators, tasks, width)
        if not np.isfinite(predict_tasks(estimators, np.zeros((1, width)))).all():
            raise ValueError("it predicts no number")
    except _DAMAGE as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SmilexError(f"cannot use {path}: {reason}; smilex did not write it, or it is damaged") from error
    return estimators


def _check_estimators(estimators: Any, tasks: int, width: int) -> None:
    """Refuse what no head of smilex has, before anything in it is called."""
    if not isinstance(estimators, list) or len(estimators) != tasks:
        raise ValueError(f"it has no list of {tasks} estimators, one a task")
    for estimator in estimators:
        steps = [step for _, step in estimator.steps] if type(estimator) is Pipeline else [estimator]
        trees = getattr(steps[-1], "estimators_", [])
        _check_types(steps[:-1], (StandardScaler,))
        _check_types(steps[-1:], ESTIMATORS)
        _check_types(trees, (DecisionTreeClassifier, DecisionTreeRegressor))
        for tree in trees:
            _check_tree(tree.tree_, width)


def _check_types(objects: Sequence[Any], known: Sequence[type]) -> None:
    for found in objects:
        if type(found) not in known:
            raise TypeError(f"it has a {type(found).__name__}, which no head has there")


def _check_tree(tree: Any, width: int) -> None:
    """Refuse a tree whose walk would leave its arrays, which scikit-learn follows without looking."""
    if tree.node_count != tree.capacity or tree.node_count < 1:
        raise ValueError("a tree has not the nodes it claims")
    here, left, right = np.arange(tree.node_count), tree.children_left, tree.children_right
    leaf = (left == -1) & (right == -1)
    # Children come after their parents, so that each walk ends.
    inner = (here < np.minimum(left, right)) & (np.maximum(left, right) < tree.node_count)
    if not (leaf | (inner & (tree.feature >= 0) & (tree.feature < width))).all():
        raise ValueError("a tree leads out of itself")
