"""The molecules of a pretraining run, in batches: what is trained on at each step, and what is held out."""

from collections.abc import Iterator
from dataclasses import dataclass

import datasets
import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from smilex.data.corpus import Corpus
from smilex.data.molecules import Molecule
from smilex.data.random_smiles import RandomSmiles
from smilex.errors import SmilexError
from smilex.objectives import Objective
from smilex.objectives.base import Batch

HELD_OUT_SHARE = 0.05
HELD_OUT_AT_MOST = 1000
"""Held-out molecules: enough for two digits of accuracy, few enough to look at often."""


@dataclass(frozen=True)
class RowsWithout:
    """All rows of a corpus but a few, without a list of them; row i of these is row `self[i]` of the corpus.

    Parameters
    ----------
    size : int
        Rows of the corpus.
    left_out : int array, shape (n,)
        Rows that are left out, in order.

    Examples
    --------
    >>> rows = RowsWithout(6, np.array([0, 3]))
    >>> len(rows), rows[np.arange(4)].tolist()
    (4, [1, 2, 4, 5])
    """

    size: int
    left_out: NDArray[np.int64]

    def __len__(self) -> int:
        return self.size - len(self.left_out)

    def __getitem__(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        before = np.searchsorted(self.left_out - np.arange(len(self.left_out)), places, side="right")
        return places + before


class PretrainingData(Dataset):
    """Batches of a corpus: item i is the i-th batch of the run, and depends on the seed and on i alone.

    Parameters
    ----------
    corpus : Corpus
        Clean, tokenised molecules.
    objective : Objective
        Makes a batch of molecules. Where it predicts values of theirs, call `add_targets` first.
    seed : int
        Seed of the held-out molecules, the order, the masks and the random SMILES.
    """

    def __init__(self, corpus: Corpus, objective: Objective, seed: int) -> None:
        size = len(corpus.dataset)
        if size < 2:
            raise SmilexError("pretraining needs at least 2 molecules: one is held out")
        held_out = min(max(1, round(HELD_OUT_SHARE * size)), HELD_OUT_AT_MOST)
        self.objective = objective
        self.held_out_rows = np.sort(np.random.default_rng(seed).choice(size, held_out, replace=False))
        self.rows = RowsWithout(size, self.held_out_rows)
        lengths = corpus.dataset.with_format("numpy")["length"][:]  # int32, as many as there are molecules
        self.batches = objective.batches(np.delete(lengths, self.held_out_rows), seed)
        self._held_out_batches = objective.batches(lengths[self.held_out_rows], seed)
        self._corpus = corpus
        self._molecules = corpus.dataset.select_columns(["smiles", "input_ids"]).with_format("numpy")
        self._random_smiles = RandomSmiles(objective.config.max_position_embeddings)
        self._seed = seed

    def add_targets(self, *, progress: bool) -> None:
        """Join what the objective predicts to the molecules; for a new corpus it may take long to compute."""
        targets = self.objective.targets(self._corpus, progress=progress)
        if targets is not None:
            self._molecules = datasets.concatenate_datasets([self._molecules, targets], axis=1).with_format("numpy")

    def __getitem__(self, step: int) -> Batch:
        molecules = self._read(self.rows[self.batches[step]])
        rng = np.random.default_rng((self._seed, step))
        if self.objective.settings.get("random_smiles"):
            molecules = [self._random_smiles.twin(molecule, rng) for molecule in molecules]
        return self.objective.collate(molecules, rng)

    def held_out(self) -> Iterator[Batch]:
        """Batches of the held-out molecules, with the same masks each time."""
        for index in range(self._held_out_batches.per_epoch):
            molecules = self._read(self.held_out_rows[self._held_out_batches[index]])
            yield self.objective.collate(molecules, np.random.default_rng((self._seed, index, 1)))

    def _read(self, rows: NDArray[np.int64]) -> list[Molecule]:
        columns = self._molecules[rows]
        columns["smiles"] = columns["smiles"].tolist()  # str, where numpy has its own kind
        return [Molecule(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


class FirstBatches(Dataset):
    """The first `count` batches of the data, as a dataset with a length."""

    def __init__(self, data: PretrainingData, count: int) -> None:
        self._data = data
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, step: int) -> Batch:
        return self._data[step]
