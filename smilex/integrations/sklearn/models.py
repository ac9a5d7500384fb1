"""Property models that scikit-learn fits."""

from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import Tags

from smilex.data.cleaning import shorten
from smilex.data.rows import warn_invalid
from smilex.errors import SmilexError
from smilex.integrations.sklearn.arrays import as_numbers, read_labels, read_molecules
from smilex.integrations.sklearn.base import SmilesModel


class SmilesRegressor(RegressorMixin, SmilesModel):
    """An ExLM encoder with a head that scikit-learn fits to measured values of molecules.

    Parameters
    ----------
    encoder : str, Path or None, default "smilex-small"
        Directory of a pretrained model, or the name of one that ships with the package; None starts from scratch.
    model : {"tiny", "small", "base"}, optional
        Size of an encoder from scratch, with ``encoder=None`` alone; "small" by default.
    pooling : {"mean", "cls"}, default "mean"
        What the head reads: the mean over the molecule's tokens, or the first state of [CLS].
    epochs, patience : int, default 50 and 10
        Passes over the training molecules at most, and passes without progress in squared error on those held out
        after which training stops. The weights of the best pass are kept.
    batch_size : int, default 32
        Molecules in a batch.
    learning_rate : float, default 5e-4
        Peak of the schedule: linear warm-up over 10 % of the run, then linear decay.
    layer_decay, dropout, balance_classes, random_smiles, averaged_smiles, precision : optional
        As in `smilex.finetune`.
    validation_fraction : float, default 0.1
        Share of the molecules that `fit` holds out to know when to stop, spread over the range of y. Rows of one
        molecule stay together.
    random_state : int, RandomState or None, default None
        Decides the molecules held out, the head's weights, the order of the molecules and dropout. With an int, each
        fit on a CPU gives the same model.
    progress : bool, default False
        Show a progress bar on stderr.

    Attributes
    ----------
    network_ : smilex.modeling.ExLMForMoleculeProperty
        The fitted model; what its ``save_pretrained`` writes is a model for `smilex.predict`.

    Notes
    -----
    X is a list, an array or a Series of SMILES strings or RDKit molecules, or a table of one column. y is (n,), or
    (n, tasks) for several targets at once, with NaN where a value is missing; targets are standardised inside.

    A molecule that cannot be used is left out by `fit` and by `score`, and its prediction is NaN; each time an
    `InvalidMoleculeWarning` names it. Scorers such as "neg_root_mean_squared_error" refuse NaN: leave such molecules
    out of cross-validation, or score with the estimator's own `score`, the default.

    Examples
    --------
    >>> smiles = ["C" * n + "O" for n in range(1, 13)]
    >>> regressor = SmilesRegressor(epochs=1, random_state=0)
    >>> regressor.fit(smiles, range(1, 13)).predict(["CCO", "c1ccccc1"]).shape
    (2,)
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n,) or (n, 1)
            SMILES strings or RDKit molecules.
        y : array-like of shape (n,) or (n, tasks)
            Measured values, NaN where missing.

        Returns
        -------
        SmilesRegressor

        Raises
        ------
        SmilexError
            If a setting, the encoder, X or y cannot be used, or too few molecules are valid and labelled.
        """
        molecules = read_molecules(X)
        self._train(molecules, as_numbers(read_labels(y, len(molecules))), "regression")
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predict values in the units of y.

        Parameters
        ----------
        X : array-like of shape (n,) or (n, 1)
            SMILES strings or RDKit molecules.

        Returns
        -------
        float64 array, shape (n,) or (n, tasks) as y in `fit`
            One row per molecule, in order; NaN where it cannot be used.
        """
        rows = self._read(X)
        warn_invalid(rows.invalid, len(rows.input_ids))
        return self._shaped(self._outputs(rows))

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return R², averaged over the tasks, of the rows that have a valid molecule and a label."""
        rows = self._read(X)
        warn_invalid(rows.invalid, len(rows.input_ids))
        return self._mean_score(r2_score, y, self._shaped(self._outputs(rows)), rows, sample_weight)


class SmilesClassifier(ClassifierMixin, SmilesModel):
    """An ExLM encoder with a head that scikit-learn fits to classes of molecules: two, or 0 and 1 of several tasks.

    Parameters
    ----------
    encoder : str, Path or None, default "smilex-small"
        Directory of a pretrained model, or the name of one that ships with the package; None starts from scratch.
    model : {"tiny", "small", "base"}, optional
        Size of an encoder from scratch, with ``encoder=None`` alone; "small" by default.
    pooling : {"mean", "cls"}, default "mean"
        What the head reads: the mean over the molecule's tokens, or the first state of [CLS].
    epochs, patience : int, default 50 and 10
        Passes over the training molecules at most, and passes without progress on those held out after which training
        stops: in ROC-AUC, and in the loss where that stays the same. The weights of the best pass are kept.
    batch_size : int, default 32
        Molecules in a batch.
    learning_rate : float, default 5e-4
        Peak of the schedule: linear warm-up over 10 % of the run, then linear decay.
    layer_decay, dropout, balance_classes, random_smiles, averaged_smiles, precision : optional
        As in `smilex.finetune`.
    validation_fraction : float, default 0.1
        Share of the molecules that `fit` holds out to know when to stop, with the classes in the same shares. Rows of
        one molecule stay together.
    random_state : int, RandomState or None, default None
        Decides the molecules held out, the head's weights, the order of the molecules and dropout. With an int, each
        fit on a CPU gives the same model.
    progress : bool, default False
        Show a progress bar on stderr.

    Attributes
    ----------
    classes_ : array of shape (2,), or list of such arrays
        The labels of y, sorted; for several tasks 0 and 1 of each.
    network_ : smilex.modeling.ExLMForMoleculeProperty
        The fitted model; what its ``save_pretrained`` writes is a model for `smilex.predict`.

    Notes
    -----
    X is a list, an array or a Series of SMILES strings or RDKit molecules, or a table of one column. y is (n,) with any
    two labels, or (n, tasks) of 0 and 1, with NaN where a label is missing. For one task of more than two classes wrap
    the estimator in `sklearn.multiclass.OneVsRestClassifier`. Where labels of several tasks are missing, cross-validate
    with ``cv=KFold(5, shuffle=True)``: what an integer stands for counts classes, and stops at NaN.

    A molecule that cannot be used is left out by `fit` and by `score`, and its probabilities are NaN; each time an
    `InvalidMoleculeWarning` names it. `predict` raises an error, as no class stands for such a molecule; the predict of
    ``OneVsRestClassifier`` gives it the first class, and its predict_proba NaN.

    Examples
    --------
    >>> smiles = ["C" * n + end for n in range(1, 9) for end in "ON"]
    >>> classifier = SmilesClassifier(epochs=1, random_state=0)
    >>> classifier.fit(smiles, ["alcohol", "amine"] * 8).predict_proba(["CCO"]).shape
    (1, 2)
    """

    classes_: NDArray[Any] | list[NDArray[np.int64]]

    def fit(self, X: Any, y: Any) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n,) or (n, 1)
            SMILES strings or RDKit molecules.
        y : array-like of shape (n,) or (n, tasks)
            Any two labels; or 0 and 1 of several tasks, NaN where missing.

        Returns
        -------
        SmilesClassifier

        Raises
        ------
        SmilexError
            If a setting, the encoder, X or y cannot be used, or too few molecules are valid and labelled.
        """
        molecules = read_molecules(X)
        labels = read_labels(y, len(molecules))
        if labels.ndim == 2:
            targets = as_numbers(labels)
            if not np.isin(targets[~np.isnan(targets)], (0, 1)).all():
                raise SmilexError("y of several tasks holds 0, 1 and NaN alone: give other labels as y of shape (n,)")
            classes: Any = [np.array([0, 1]) for _ in range(targets.shape[1])]
        else:
            classes, targets = _two_classes(y)
        self._train(molecules, targets, "classification")
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64] | list[NDArray[np.float64]]:
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n,) or (n, 1)
            SMILES strings or RDKit molecules.

        Returns
        -------
        float64 array, shape (n, 2), or a list of one for each task
            In the order of `classes_`, as for scikit-learn's random forests; one row per molecule, in order; NaN where
            it cannot be used.
        """
        rows = self._read(X)
        warn_invalid(rows.invalid, len(rows.input_ids))
        tasks = [np.stack([1 - positive, positive], axis=1) for positive in self._outputs(rows).T]
        return tasks[0] if self._one_column else tasks

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the more probable class.

        Parameters
        ----------
        X : array-like of shape (n,) or (n, 1)
            SMILES strings or RDKit molecules.

        Returns
        -------
        array, shape (n,) or (n, tasks) as y in `fit`
            Labels as in `classes_`, in order.

        Raises
        ------
        SmilexError
            If a molecule cannot be used.
        """
        rows = self._read(X)
        if rows.invalid:
            index, text, reason = rows.invalid[0]
            raise SmilexError(
                f"{len(rows.invalid)} of {len(rows.input_ids)} rows hold no molecule that can be used (row {index}: "
                f"{shorten(text)}, {reason}), and no class stands for them: leave them out, or use predict_proba, "
                "which gives NaN there"
            )
        return self._decide(self._outputs(rows))

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy, averaged over the tasks, of the rows that have a valid molecule and a label."""
        rows = self._read(X)
        warn_invalid(rows.invalid, len(rows.input_ids))
        return self._mean_score(accuracy_score, y, self._decide(self._outputs(rows)), rows, sample_weight)

    def _decide(self, probability: NDArray[np.float64]) -> NDArray[Any]:
        positive = self._shaped((probability > 0.5).astype(np.int64))
        return self.classes_[positive] if isinstance(self.classes_, np.ndarray) else positive

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        return tags


def _two_classes(y: Any) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return the two labels of y, sorted, and for each row which of them it has."""
    labels = np.asarray(y)
    if pd.isna(labels).any():
        raise SmilexError("y holds missing labels: leave these rows out, or give y of shape (n, 1) with 0, 1 and NaN")
    encoder = LabelEncoder()
    numbers = encoder.fit_transform(labels)
    count = len(encoder.classes_)
    if count < 2:
        raise SmilexError(f"y has {count} class, and a classifier needs two: add molecules with the other label")
    if count > 2:
        raise SmilexError(
            f"Only binary classification is supported, and y has {count} classes: use "
            "sklearn.multiclass.OneVsRestClassifier(SmilesClassifier(...)), or SmilesRegressor for measured values"
        )
    return encoder.classes_, numbers.astype(np.float64)
