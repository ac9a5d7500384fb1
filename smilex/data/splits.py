"""Splitting molecules into training, validation and test parts.

A scaffold split puts all molecules of one Bemis-Murcko framework into one part, so that the test part holds
chemistry that training has not seen. Splits that are drawn or made of scaffolds never put one molecule, however its
rows are written, into two parts; those that follow a column do what the column says, and `shared_molecules` counts.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import GroupKFold

from smilex.checks import count
from smilex.chem import canonicalize, murcko_scaffold
from smilex.data.stratify import assign, label_indicators
from smilex.errors import InvalidSmilesError, SmilexError

SplitMethod = Literal["scaffold", "balanced_scaffold", "random", "stratified", "column", "time"]

METHODS: tuple[str, ...] = get_args(SplitMethod)

PARTS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of the three parts, in increasing order.

    Parameters
    ----------
    train, valid, test : int64 arrays of shape (rows of the part,)
        No row is in two parts. Rows that RDKit refuses are in none.
    """

    train: NDArray[np.int64]
    valid: NDArray[np.int64]
    test: NDArray[np.int64]

    def parts(self) -> dict[str, NDArray[np.int64]]:
        """Return the parts by name, in the order train, valid, test."""
        return {"train": self.train, "valid": self.valid, "test": self.test}


def split(
    smiles: Sequence[str],
    method: SplitMethod = "scaffold",
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    *,
    targets: ArrayLike | None = None,
    column: Sequence[object] | None = None,
) -> Split:
    """Split molecules into training, validation and test parts.

    Parameters
    ----------
    smiles : sequence of str
        One molecule a row. Rows that RDKit refuses go into no part.
    method : str
        - "scaffold" (default) fills training, then validation, then test with whole groups of one Bemis-Murcko
          scaffold [1]_, largest group first; the parts are those of DeepChem's ScaffoldSplitter [2]_ and hold no
          chance.
        - "balanced_scaffold" keeps scaffolds together too, but only those that would fill over half of the validation
          or test part come first; the others are shuffled (after [3]_), so that these parts do not hold rare
          scaffolds alone.
        - "random" draws molecules.
        - "stratified" draws molecules so that each part has the classes, or the range of measured values, in the
          same shares; for several tasks at once (see `smilex.data.stratify`). It needs `targets`.
        - "column" reads the part, "train", "valid" or "test", from `column`.
        - "time" trains on the oldest rows and tests on the newest, by `column`; equal times keep their row order.
    fractions : three floats
        Shares of training, validation and test; they sum to 1. Default 0.8, 0.1, 0.1. "column" does not use them.
    seed : int
        Seed of "random", "stratified" and "balanced_scaffold": the same seed gives the same parts.
    targets : float array of shape (n, tasks), optional
        Labels for "stratified", NaN where missing.
    column : sequence, optional
        One value a row for "column"; for "time" numbers, dates, or strings such as "2021-03-31".

    Returns
    -------
    Split
        Row numbers; every part has at least one.

    Raises
    ------
    SmilexError
        If there are fewer than 3 valid molecules, a part would be empty, a setting is unknown, or the labels or the
        column that a method needs are missing or do not fit.

    References
    ----------
    .. [1] Bemis and Murcko, J. Med. Chem. 1996, 39, 2887. doi:10.1021/jm9602928
    .. [2] Ramsundar et al., Deep Learning for the Life Sciences, O'Reilly 2019.
    .. [3] Yang et al., J. Chem. Inf. Model. 2019, 59, 3370. doi:10.1021/acs.jcim.9b00237

    Examples
    --------
    >>> smiles = ["CCO", "c1ccccc1", "c1ccccc1C", "C1CC1"]
    >>> split(smiles, fractions=(0.5, 0.25, 0.25)).train
    array([1, 2])
    >>> [len(rows) for rows in split(smiles, method="random").parts().values()]
    [2, 1, 1]
    >>> split(smiles, "time", column=[2019, 2021, 2018, 2020]).test
    array([1])
    """
    _check_fractions(fractions)
    if method not in METHODS:
        raise SmilexError(f"unknown split {method!r}; choose one of {', '.join(map(repr, METHODS))}")
    rng = np.random.default_rng(count("seed", seed, at_least=0))
    groups = _rows_by(murcko_scaffold if "scaffold" in method else canonicalize, smiles)
    _check_size(sum(map(len, groups)), len(smiles))
    if method == "scaffold":
        parts = _fill(_largest_first(groups), fractions)
    elif method == "balanced_scaffold":
        parts = _fill(_large_first(groups, fractions, rng), fractions)
    elif method == "random":
        parts = _cut([groups[index] for index in rng.permutation(len(groups))], fractions)
    elif method == "stratified":
        parts = _stratify(groups, _targets(targets, len(smiles)), fractions, seed)
    else:
        values = _values(column, method, len(smiles))
        rows = sorted(row for group in groups for row in group)
        parts = _by_name(rows, values) if method == "column" else _cut(_oldest_first(rows, values), fractions)
    return _checked(Split(*(np.array(sorted(part), dtype=np.int64) for part in parts)), method, len(smiles))


def scaffold_folds(smiles: Sequence[str], n_folds: int = 5, seed: int = 0) -> list[Split]:
    """Return the splits of a cross-validation in which no scaffold is in two folds.

    Parameters
    ----------
    smiles : sequence of str
        One molecule a row. Rows that RDKit refuses go into no fold.
    n_folds : int
        How many folds, at least 3. Default 5.
    seed : int
        Which scaffolds share a fold; folds are about equally large for any seed.

    Returns
    -------
    list of Split
        One for each fold: it is the test part, the next fold the validation part, the others the training part.

    Raises
    ------
    SmilexError
        If there are fewer than 3 folds, or fewer scaffolds than folds.

    Examples
    --------
    >>> folds = scaffold_folds(["c1ccccc1", "c1ccccc1C", "C1CC1", "C1CCC1"], n_folds=3)
    >>> sorted(fold.test.tolist() for fold in folds)
    [[0, 1], [2], [3]]
    """
    rng = np.random.default_rng(count("seed", seed, at_least=0))
    if count("n_folds", n_folds) < 3:
        raise SmilexError(f"n_folds is {n_folds}; give at least 3, for training, validation and test")
    groups = _rows_by(murcko_scaffold, smiles)
    if len(groups) < n_folds:
        raise SmilexError(
            f"{len(groups)} scaffolds are too few for {n_folds} folds; give fewer folds or more molecules"
        )
    rows = np.concatenate([np.array(group) for group in groups])
    # GroupKFold puts the largest groups first, each into the smallest fold; among equals the label decides.
    labels = rng.permutation(len(groups))
    group_of = np.repeat(labels, [len(group) for group in groups])
    folds = [np.sort(rows[test]) for _, test in GroupKFold(n_folds).split(rows, groups=group_of)]
    splits = []
    for index, test in enumerate(folds):
        following = (index + 1) % n_folds
        others = [fold for number, fold in enumerate(folds) if number not in (index, following)]
        splits.append(Split(np.sort(np.concatenate(others)), folds[following], test))
    return splits


def duplicate_molecules(smiles: Sequence[str]) -> list[list[int]]:
    """Find rows that hold the same molecule, however it is written.

    Parameters
    ----------
    smiles : sequence of str
        One molecule a row. Rows that RDKit refuses are left out.

    Returns
    -------
    list of lists of int
        Rows with one canonical isomeric SMILES, for each that occurs more than once, in order of first occurrence.

    Examples
    --------
    >>> duplicate_molecules(["OCC", "C", "CCO", "not a molecule"])
    [[0, 2]]
    """
    return [rows for rows in _rows_by(canonicalize, smiles) if len(rows) > 1]


def repeated(keys: Iterable[Hashable | None]) -> list[list[int]]:
    """Find rows with the same key, as `duplicate_molecules` does where each row's molecule is known already.

    Parameters
    ----------
    keys : iterable of hashable
        What is equal for equal molecules, such as the token ids of their canonical SMILES; None leaves the row out.

    Returns
    -------
    list of lists of int
        Rows with one key, for each that occurs more than once, in order of first occurrence.

    Examples
    --------
    >>> repeated(["CCO", "C", "CCO", None, None])
    [[0, 2]]
    """
    return [rows for rows in _group(keys) if len(rows) > 1]


def shared_molecules(smiles: Sequence[str], parts: Split) -> dict[str, int]:
    """Count the molecules that two parts of a split share: labels that leak from one to the other.

    Parameters
    ----------
    smiles : sequence of str
        One molecule a row.
    parts : Split
        A split of these rows.

    Returns
    -------
    dict of str to int
        Distinct molecules that stand in both parts, under the keys "train_valid", "train_test" and "valid_test".

    Examples
    --------
    >>> rows = [np.array([0]), np.array([1]), np.array([2])]
    >>> shared_molecules(["OCC", "CCO", "CC"], Split(*rows))
    {'train_valid': 1, 'train_test': 0, 'valid_test': 0}
    """
    return shared_among(duplicate_molecules(smiles), parts)


def shared_among(duplicates: Sequence[Sequence[int]], parts: Split) -> dict[str, int]:
    """Count as `shared_molecules` does, where the rows of each repeated molecule are known already.

    Examples
    --------
    >>> rows = [np.array([0]), np.array([1]), np.array([2])]
    >>> shared_among([[0, 1]], Split(*rows))
    {'train_valid': 1, 'train_test': 0, 'valid_test': 0}
    """
    part_of_row = {int(row): name for name, rows in parts.parts().items() for row in rows}
    homes = [{part_of_row[row] for row in group if row in part_of_row} for group in duplicates]
    return {f"{a}_{b}": sum({a, b} <= home for home in homes) for a, b in combinations(parts.parts(), 2)}


def _rows_by(key: Callable[[str], str], smiles: Sequence[str]) -> list[list[int]]:
    """Group the valid rows by a key of the molecule, in order of first occurrence."""

    def key_or_none(text: str) -> str | None:
        try:
            return key(text)
        except InvalidSmilesError:
            return None  # the caller reports such rows

    return _group(map(key_or_none, smiles))


def _group(keys: Iterable[Hashable | None]) -> list[list[int]]:
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        if key is not None:
            groups[key].append(row)
    return list(groups.values())


def _largest_first(groups: list[list[int]]) -> list[list[int]]:
    # The group that starts later comes first among equals: the order that published splits rest on.
    return sorted(groups, key=lambda rows: (len(rows), rows[0]), reverse=True)


def _large_first(
    groups: list[list[int]], fractions: tuple[float, float, float], rng: np.random.Generator
) -> list[list[int]]:
    """Shuffle the groups, except those that would fill over half of the validation or the test part: largest first."""
    limit = min(fractions[1:]) * sum(map(len, groups)) / 2
    shuffled = [groups[index] for index in rng.permutation(len(groups))]
    return sorted(shuffled, key=lambda rows: -len(rows) if len(rows) > limit else 0)


def _fill(groups: list[list[int]], fractions: tuple[float, float, float]) -> list[list[int]]:
    """Put each group into the first part that has room for it."""
    count = sum(map(len, groups))
    train_limit = fractions[0] * count
    valid_limit = (fractions[0] + fractions[1]) * count
    train: list[int] = []
    valid: list[int] = []
    test: list[int] = []
    for rows in groups:
        if len(train) + len(rows) <= train_limit:
            train += rows
        elif len(train) + len(valid) + len(rows) <= valid_limit:
            valid += rows
        else:
            test += rows
    return [train, valid, test]


def _cut(groups: list[list[int]], fractions: tuple[float, float, float]) -> list[list[int]]:
    """Cut a sequence of groups in three, where their rows come closest to the shares."""
    ends = np.cumsum([len(rows) for rows in groups])
    first, second = (int(np.abs(ends - share * ends[-1]).argmin()) + 1 for share in np.cumsum(fractions)[:2])
    # Small sets keep one molecule in each part.
    first = max(min(first, len(groups) - 2), 1)
    second = max(min(second, len(groups) - 1), first + 1)
    pieces = groups[:first], groups[first:second], groups[second:]
    return [[row for rows in piece for row in rows] for piece in pieces]


def _stratify(
    groups: list[list[int]], targets: NDArray[np.float64], fractions: tuple[float, float, float], seed: int
) -> list[list[int]]:
    indicators = label_indicators(targets)
    labels = np.array([indicators[rows].sum(axis=0, dtype=np.int32) for rows in groups])
    part_of = assign(labels, np.array([len(rows) for rows in groups]), fractions, seed)
    return [[row for index in np.flatnonzero(part_of == part) for row in groups[index]] for part in range(3)]


def _targets(targets: ArrayLike | None, rows: int) -> NDArray[np.float64]:
    if targets is None:
        raise SmilexError("the stratified split needs the labels; give targets=")
    labels = np.asarray(targets, dtype=np.float64)
    if labels.ndim != 2 or len(labels) != rows:
        raise SmilexError(f"labels are {labels.shape} for {rows} molecules; give one row a molecule, one column a task")
    return labels


def _values(column: Sequence[object] | None, method: str, rows: int) -> list[object]:
    if column is None:
        raise SmilexError(f"the split {method!r} follows a column of the table; say which by split_column=")
    if len(column) != rows:
        raise SmilexError(f"the split column has {len(column)} values for {rows} molecules")
    return list(column)


def _by_name(rows: list[int], values: list[object]) -> list[list[int]]:
    for row in rows:
        if not (isinstance(values[row], str) and values[row] in PARTS):
            raise SmilexError(f"the split column says {values[row]!r} in row {row}; it must say train, valid or test")
    return [[row for row in rows if values[row] == part] for part in PARTS]


def _oldest_first(rows: list[int], values: list[object]) -> list[list[int]]:
    """Sort rows by a column of numbers or else of dates, each row as a group of its own."""
    cells = pd.Series([values[row] for row in rows], dtype=object)
    numbers = pd.to_numeric(cells, errors="coerce")
    # As text, so that the year 2019 among dates is a date.
    dates = pd.to_datetime(cells.map(str), errors="coerce", format="ISO8601", utc=True)
    times = dates if dates[numbers.isna()].notna().any() else numbers
    unreadable = np.flatnonzero(times.isna())
    if unreadable.size:
        row = rows[int(unreadable[0])]
        raise SmilexError(f"the split column has no time in row {row} ({values[row]!r}): give numbers or YYYY-MM-DD")
    return [[rows[index]] for index in np.argsort(times.to_numpy(), kind="stable")]


def _checked(parts: Split, method: str, rows: int) -> Split:
    for name, part in parts.parts().items():
        if part.size:
            continue
        what = f"the {method} split leaves the {name} part empty ({rows} molecules"
        if "scaffold" in method:
            raise SmilexError(
                f"{what}, too few scaffolds or too large ones): use split='random', or give more molecules"
            )
        raise SmilexError(f"{what}): give more different molecules")
    return parts


def _check_fractions(fractions: Iterable[float]) -> None:
    shares = tuple(fractions)
    if len(shares) != 3 or not all(share > 0 for share in shares) or not math.isclose(sum(shares), 1, abs_tol=1e-6):
        raise SmilexError(f"fractions are {shares}; give three positive shares that sum to 1, such as (0.8, 0.1, 0.1)")


def _check_size(valid: int, rows: int) -> None:
    if valid < 3:
        raise SmilexError(f"{valid} of {rows} rows hold a valid molecule; a split needs at least 3")
