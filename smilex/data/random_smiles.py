"""Random SMILES of molecules that are token ids already, as token ids."""

from collections.abc import Sequence

import numpy as np

from smilex.chem import enumerate_smiles
from smilex.data.molecules import Molecule
from smilex.errors import InvalidSmilesError
from smilex.tokenization import SmilesTokenizer


class RandomSmiles:
    """Writes tokenised molecules in random ways that a model can read.

    A way that is longer than the model takes, or has a token that it does not know, is never given out. A molecule is
    read from its tokens each time: that takes a few per cent of a training step, and no memory.

    Parameters
    ----------
    max_length : int
        Most tokens that the model takes, with [CLS] and [SEP].

    Examples
    --------
    >>> tokenizer = SmilesTokenizer()
    >>> writings = RandomSmiles(max_length=512).several(tokenizer("CCO")["input_ids"], 8)
    >>> [tokenizer.decode(ids, skip_special_tokens=True) for ids in writings]
    ['CCO', 'C(C)O', 'OCC', 'C(O)C']
    """

    def __init__(self, max_length: int) -> None:
        self._tokenizer = SmilesTokenizer()
        self._max_length = max_length

    def draw(self, ids: Sequence[int], seed: Sequence[int]) -> list[int]:
        """Write a molecule in one random way, or as it is where that way cannot be used.

        Parameters
        ----------
        ids : sequence of int
            Token ids of a SMILES, with [CLS] and [SEP].
        seed : sequence of int
            Numbers from 0 on; the same ones give the same result.

        Returns
        -------
        list of int
            Token ids.
        """
        number = int(np.random.SeedSequence(seed).generate_state(1)[0])
        return next(iter(self._write(ids, 1, number)), list(ids))

    def twin(self, molecule: Molecule, rng: np.random.Generator) -> Molecule:
        """Write a molecule as `draw` does, by the chance of `rng`."""
        ids = self.draw(molecule.input_ids.tolist(), (int(rng.integers(2**32)),))
        smiles = str(self._tokenizer.decode(ids, skip_special_tokens=True))
        return molecule._replace(smiles=smiles, input_ids=np.array(ids, dtype=np.int64))

    def several(self, ids: Sequence[int], count: int) -> list[list[int]]:
        """Write a molecule in different ways, always the same ones: first as it is, then in random ways.

        Parameters
        ----------
        ids : sequence of int
            Token ids of a SMILES, with [CLS] and [SEP].
        count : int
            How many ways; a small molecule may have fewer.

        Returns
        -------
        list of list of int
            Token ids, 1 to `count` lists.
        """
        found = {tuple(ids): None}
        # Random ways repeat where a molecule is small; then a few more are drawn.
        for draws in (count - 1, 8 * count):
            found.update(dict.fromkeys(map(tuple, self._write(ids, draws, 0))))
            if len(found) >= count:
                break
        return [list(writing) for writing in list(found)[:count]]

    def _write(self, ids: Sequence[int], n: int, seed: int) -> list[list[int]]:
        """Give those of n random writings that can be used."""
        if n < 1:
            return []
        try:
            texts = enumerate_smiles(str(self._tokenizer.decode(list(ids), skip_special_tokens=True)), n, seed)
        except InvalidSmilesError:  # RDKit writes a few molecules that it does not read
            return []
        unknown = self._tokenizer.unk_token_id
        written = self._tokenizer(texts, verbose=False)["input_ids"]
        return [tokens for tokens in written if len(tokens) <= self._max_length and unknown not in tokens]
