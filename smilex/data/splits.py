"""Splitting molecules into training, validation and test parts.

A scaffold split puts all molecules of one Bemis-Murcko framework into one part, so that the test part holds
chemistry that training has not seen.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from smilex.chem import canonicalize, murcko_scaffold
from smilex.errors import InvalidSmilesError, SmilexError

SplitMethod = Literal["scaffold", "random"]


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
) -> Split:
    """Split molecules into training, validation and test parts.

    Parameters
    ----------
    smiles : sequence of str
        One molecule a row. Rows that RDKit refuses go into no part.
    method : {"scaffold", "random"}
        "scaffold" (default) fills training, then validation, then test with whole groups of one Bemis-Murcko scaffold
        [1]_, largest group first; the parts are those of DeepChem's ScaffoldSplitter [2]_ and hold no chance.
        "random" draws rows.
    fractions : three floats
        Shares of training, validation and test; they sum to 1. Default 0.8, 0.1, 0.1.
    seed : int
        Seed of "random"; "scaffold" does not use it.

    Returns
    -------
    Split
        Row numbers; every part has at least one.

    Raises
    ------
    SmilexError
        If there are fewer than 3 valid molecules, a part would be empty, or a setting is unknown.

    References
    ----------
    .. [1] Bemis and Murcko, J. Med. Chem. 1996, 39, 2887. doi:10.1021/jm9602928
    .. [2] Ramsundar et al., Deep Learning for the Life Sciences, O'Reilly 2019.

    Examples
    --------
    >>> smiles = ["CCO", "c1ccccc1", "c1ccccc1C", "C1CC1"]
    >>> split(smiles, fractions=(0.5, 0.25, 0.25)).train
    array([1, 2])
    >>> [len(rows) for rows in split(smiles, method="random").parts().values()]
    [2, 1, 1]
    """
    _check_fractions(fractions)
    if method == "scaffold":
        groups = _rows_by(murcko_scaffold, smiles)
        _check_size(sum(map(len, groups)), len(smiles))
        parts = _fill_by_scaffold(groups, fractions)
    elif method == "random":
        rows = np.sort(np.fromiter((row for group in _rows_by(canonicalize, smiles) for row in group), dtype=np.int64))
        _check_size(len(rows), len(smiles))
        parts = _draw(rows, fractions, seed)
    else:
        raise SmilexError(f"unknown split {method!r}; choose 'scaffold' or 'random'")
    result = Split(*(np.array(sorted(part), dtype=np.int64) for part in parts))
    for name, part in result.parts().items():
        if not part.size:
            raise SmilexError(
                f"the {method} split leaves the {name} part empty ({len(smiles)} molecules, too few scaffolds "
                "or too large ones): use split='random', or give more molecules"
            )
    return result


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
    part_of_row = {int(row): name for name, rows in parts.parts().items() for row in rows}
    homes = [{part_of_row[row] for row in group if row in part_of_row} for group in duplicate_molecules(smiles)]
    return {f"{a}_{b}": sum({a, b} <= home for home in homes) for a, b in combinations(parts.parts(), 2)}


def _rows_by(key: Callable[[str], str], smiles: Sequence[str]) -> list[list[int]]:
    """Group the valid rows by a key of the molecule, in order of first occurrence."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(smiles):
        try:
            groups[key(text)].append(row)
        except InvalidSmilesError:
            continue  # the caller reports such rows
    return list(groups.values())


def _fill_by_scaffold(groups: list[list[int]], fractions: tuple[float, float, float]) -> list[list[int]]:
    # Largest group first, the one that starts later first among equals: the order that published splits rest on.
    groups = sorted(groups, key=lambda rows: (len(rows), rows[0]), reverse=True)
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


def _draw(rows: NDArray[np.int64], fractions: tuple[float, float, float], seed: int) -> list[list[int]]:
    rows = np.random.default_rng(seed).permutation(rows)
    # Small sets keep one molecule in each part.
    first = min(max(round(fractions[0] * len(rows)), 1), len(rows) - 2)
    second = min(max(round((fractions[0] + fractions[1]) * len(rows)), first + 1), len(rows) - 1)
    return [part.tolist() for part in np.split(rows, [first, second])]


def _check_fractions(fractions: Iterable[float]) -> None:
    shares = tuple(fractions)
    if len(shares) != 3 or not all(share > 0 for share in shares) or not math.isclose(sum(shares), 1, abs_tol=1e-6):
        raise SmilexError(f"fractions are {shares}; give three positive shares that sum to 1, such as (0.8, 0.1, 0.1)")


def _check_size(valid: int, rows: int) -> None:
    if valid < 3:
        raise SmilexError(f"{valid} of {rows} rows hold a valid molecule; a split needs at least 3")
