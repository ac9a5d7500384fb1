"""RDKit's 2D descriptors of molecules.

Worker processes compute them, so this module imports neither torch nor transformers.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import Descriptors

from smilex.chem import parse
from smilex.errors import InvalidSmilesError

LEFT_OUT = ("qed", "Ipc", "AvgIpc")
"""What costs most for what it tells.

Of all descriptors of drugs, qed takes 18 % of the time, and is a function of eight others. Ipc and AvgIpc take 7 %, and
80 % where a molecule has 400 atoms; Ipc is beyond 1e21 there.
"""


def _functions() -> dict[str, Callable[[Chem.Mol], float]]:
    functions = {name: function for name, function in Descriptors.descList if name not in LEFT_OUT}
    # The first of these leaves at the molecule what the others would compute anew, in 11 % of the time of all.
    return {name: partial(f, force=False) if name.endswith("EStateIndex") else f for name, f in functions.items()}


_FUNCTIONS = _functions()

DESCRIPTOR_NAMES = tuple(_FUNCTIONS)
"""Names of the descriptors, in the order of `compute_descriptors`; they depend on the version of RDKit."""


def compute_descriptors(smiles: Sequence[str]) -> NDArray[np.float32]:
    """Compute the 2D descriptors of molecules, those in `LEFT_OUT` aside.

    Parameters
    ----------
    smiles : sequence of str
        n molecules.

    Returns
    -------
    float32 array, shape (n, len(DESCRIPTOR_NAMES))
        In the units of RDKit; NaN where a descriptor has no finite value for a molecule, as partial charges of metals.
        A row of NaN where RDKit cannot read a molecule, which happens to a few that it has written.

    Examples
    --------
    >>> values = compute_descriptors(["CCO", "C1CC"])
    >>> [round(float(value), 2) for value in values[:, DESCRIPTOR_NAMES.index("MolWt")]]
    [46.07, nan]
    """
    values = np.full((len(smiles), len(DESCRIPTOR_NAMES)), np.nan)
    with np.errstate(all="ignore"):
        for row, text in zip(values, smiles, strict=True):
            try:
                mol = parse(text)
            except InvalidSmilesError:
                continue
            for place, function in enumerate(_FUNCTIONS.values()):
                row[place] = _value(function, mol)
        single = values.astype(np.float32)
    single[~np.isfinite(single)] = np.nan
    return single


def _value(function: Callable[[Chem.Mol], float], mol: Chem.Mol) -> float:
    """Compute one descriptor; NaN where it fails, as each can fail in its own way."""
    try:
        return function(mol)
    except Exception:  # noqa: BLE001
        return float("nan")
