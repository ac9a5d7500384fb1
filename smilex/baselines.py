"""What a model must beat: the mean of the training labels, and ECFP4 fingerprints with a random forest."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from smilex.chem import parse
from smilex.data.properties import Kind
from smilex.errors import InvalidSmilesError, SmilexError
from smilex.estimators import answers


def ecfp4(smiles: Sequence[str], n_bits: int = 2048) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return Morgan fingerprints of radius 2 (ECFP4; Rogers and Hahn, doi:10.1021/ci100050t).

    Parameters
    ----------
    smiles : sequence of str
        One molecule a row.
    n_bits : int
        Length of the folded fingerprint. Default 2048.

    Returns
    -------
    bits : uint8 array of shape (n, n_bits)
        0 or 1; a row of zeros where RDKit refuses the molecule.
    valid : bool array of shape (n,)
        Whether RDKit accepts the molecule.

    Examples
    --------
    >>> bits, valid = ecfp4(["CCO", "not a molecule"])
    >>> bits.shape, int(bits[0].sum()), valid.tolist()
    ((2, 2048), 6, [True, False])
    """
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=n_bits)
    bits = np.zeros((len(smiles), n_bits), dtype=np.uint8)
    valid = np.zeros(len(smiles), dtype=np.bool_)
    for row, molecule in enumerate(_molecules(smiles)):
        if molecule is not None:
            bits[row] = generator.GetFingerprintAsNumPy(molecule)
            valid[row] = True
    return bits, valid


def predict_mean(train_targets: ArrayLike, smiles: Sequence[str]) -> NDArray[np.float64]:
    """Predict, for every molecule, the mean of each task's training labels: the share of class 1 for classes.

    Parameters
    ----------
    train_targets : float array of shape (n_train, tasks)
        Labels, NaN where missing.
    smiles : sequence of str
        Molecules to predict.

    Returns
    -------
    float64 array of shape (n, tasks)
        In the units of the labels; NaN rows where RDKit refuses the molecule.

    Raises
    ------
    SmilexError
        If a task has no label.

    Examples
    --------
    >>> predict_mean([[1.0], [2.0], [float("nan")]], ["CCO", "C1"])
    array([[1.5], [nan]])
    """
    targets = _targets(train_targets)
    predictions = np.tile(np.nanmean(targets, axis=0), (len(smiles), 1))
    predictions[[molecule is None for molecule in _molecules(smiles)]] = np.nan
    return predictions


def ecfp4_random_forest(
    train_smiles: Sequence[str],
    train_targets: ArrayLike,
    smiles: Sequence[str],
    kind: Kind,
    *,
    n_trees: int = 300,
    seed: int = 0,
    n_jobs: int = -1,
) -> NDArray[np.float64]:
    """Train one random forest a task on ECFP4 fingerprints and predict.

    Parameters
    ----------
    train_smiles : sequence of str
        Training molecules; those that RDKit refuses are not trained on.
    train_targets : float array of shape (n_train, tasks)
        Labels, NaN where missing.
    smiles : sequence of str
        Molecules to predict.
    kind : {"regression", "classification"}
        What the tasks are.
    n_trees : int
        Trees of each forest. Default 300.
    seed : int
        Seed of the forests. Default 0.
    n_jobs : int
        Processor cores; -1 (default) takes all. The result does not depend on it.

    Returns
    -------
    float64 array of shape (n, tasks)
        Values in the units of the labels, or probabilities of class 1; NaN rows where RDKit refuses the molecule.

    Raises
    ------
    SmilexError
        If the lengths differ, or a task has no label on a valid molecule.

    Examples
    --------
    >>> train = ["CCO", "CCCO", "CCN", "CCCN"]
    >>> p = ecfp4_random_forest(train, [[0], [0], [1], [1]], ["CCCCN", "C1"], "classification", n_trees=50, n_jobs=1)
    >>> p.shape, bool(p[0, 0] > 0.5), bool(np.isnan(p[1, 0]))
    ((2, 1), True, True)
    """
    targets = _targets(train_targets)
    if len(targets) != len(train_smiles):
        raise SmilexError(f"{len(train_smiles)} training molecules, but {len(targets)} rows of labels")
    train_bits, train_valid = ecfp4(train_smiles)
    bits, valid = ecfp4(smiles)
    predictions = np.full((len(smiles), targets.shape[1]), np.nan)
    predictions[valid] = random_forest(
        train_bits[train_valid],
        targets[train_valid],
        bits[valid],
        kind,
        n_trees=n_trees,
        seed=seed,
        n_jobs=n_jobs,
    )
    return predictions


def random_forest(
    train_features: NDArray[Any],
    train_targets: ArrayLike,
    features: NDArray[Any],
    kind: Kind,
    *,
    n_trees: int = 300,
    seed: int = 0,
    n_jobs: int = -1,
) -> NDArray[np.float64]:
    """Train one random forest a task on features, such as fingerprints of `ecfp4`, and predict.

    Parameters
    ----------
    train_features, features : arrays of shape (n_train, d) and (n, d)
        Features of the training molecules, and of those to predict.
    train_targets : float array of shape (n_train, tasks)
        Labels, NaN where missing.
    kind, n_trees, seed, n_jobs
        As in `ecfp4_random_forest`.

    Returns
    -------
    float64 array of shape (n, tasks)
        Values in the units of the labels, or probabilities of class 1.

    Raises
    ------
    SmilexError
        If a task has no label.

    Examples
    --------
    >>> bits, _ = ecfp4(["CCO", "CCCO", "CCN", "CCCN"])
    >>> random_forest(bits, [[0], [0], [1], [1]], bits[:1], "classification", n_trees=50, n_jobs=1)[0, 0] < 0.5
    np.True_
    """
    targets = _targets(train_targets)
    predictions = np.empty((len(features), targets.shape[1]))
    if not len(features):
        return predictions
    for task, labels in enumerate(targets.T):
        present = ~np.isnan(labels)
        forest = _forest(kind)(n_estimators=n_trees, random_state=seed, n_jobs=n_jobs)
        forest.fit(train_features[present], labels[present])
        predictions[:, task] = answers(forest, features)
    return predictions


def _molecules(smiles: Sequence[str]) -> Iterator[Chem.Mol | None]:
    for text in smiles:
        try:
            yield parse(text)
        except InvalidSmilesError:
            yield None


def _forest(kind: Kind) -> type[RandomForestRegressor | RandomForestClassifier]:
    forests = {"regression": RandomForestRegressor, "classification": RandomForestClassifier}
    if kind not in forests:
        raise SmilexError(f"unknown kind of task {kind!r}; choose 'regression' or 'classification'")
    return forests[kind]


def _targets(values: ArrayLike) -> NDArray[np.float64]:
    targets = np.asarray(values, dtype=np.float64)
    if targets.ndim != 2:
        raise SmilexError(f"labels must be (molecules, tasks), not {targets.shape}")
    empty = np.isnan(targets).all(axis=0)
    if empty.any():
        raise SmilexError(
            f"task {int(np.flatnonzero(empty)[0])} has no training label on a valid molecule; leave it out"
        )
    return targets
