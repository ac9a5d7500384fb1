"""A molecule of a corpus, as objectives receive it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smilex.tokenization import SmilesTokenizer


class Molecule(NamedTuple):
    """A SMILES, its tokens and, for objectives that predict such, values.

    Attributes
    ----------
    smiles : str
        The SMILES; in a corpus it is canonical, so that equal strings are one molecule.
    input_ids : int array, shape (L,)
        Its token ids, with [CLS] and [SEP].
    targets : float array, shape (number of targets,), optional
        What is to be predicted for it; NaN where unknown.

    Examples
    --------
    >>> Molecule.read("CCO").input_ids.shape
    (5,)
    """

    smiles: str
    input_ids: NDArray[np.integer]
    targets: NDArray[np.floating] | None = None

    @classmethod
    def read(cls, smiles: str) -> "Molecule":
        """Tokenise a SMILES, which is taken as it is."""
        return cls(smiles, np.array(_TOKENIZER(smiles, verbose=False)["input_ids"], dtype=np.int64))


_TOKENIZER = SmilesTokenizer()
