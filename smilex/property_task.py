"""What a property model learns from: molecules, labels, the parts they belong to, and batches of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smilex.data.batching import pad
from smilex.data.properties import PropertyDataset
from smilex.data.random_smiles import RandomSmiles
from smilex.data.rows import EncodedRows
from smilex.data.splits import Split

MAX_POSITIVE_WEIGHT = 100.0
"""Most that a label of class 1 counts, so that a handful of molecules does not decide everything."""


@dataclass(frozen=True)
class PropertyTask:
    """Tokenised molecules, their labels and the parts they belong to."""

    data: PropertyDataset
    rows: EncodedRows
    parts: Split

    def labelled(self, part: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of a part that have a label."""
        return part[~np.isnan(self.data.targets[part]).all(axis=1)]


def positive_weights(labels: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much a label of class 1 counts, where one of class 0 counts 1, so that both classes count the same.

    Parameters
    ----------
    labels : float64 array of shape (n, tasks)
        0, 1, or NaN where missing.

    Returns
    -------
    float64 array of shape (tasks,)
        Labels of 0 over labels of 1, at most `MAX_POSITIVE_WEIGHT`; 1 for a task of one class.

    Examples
    --------
    >>> positive_weights(np.array([[0, 1], [0, np.nan], [1, 1]])).tolist()
    [2.0, 1.0]
    """
    positives, negatives = (labels == 1).sum(axis=0), (labels == 0).sum(axis=0)
    ratio = np.minimum(negatives / np.maximum(positives, 1), MAX_POSITIVE_WEIGHT)
    return np.where((positives > 0) & (negatives > 0), ratio, 1.0)


class TrainingMolecules(torch.utils.data.Dataset):
    """The labelled molecules of a part, for the trainer.

    Parameters
    ----------
    task : PropertyTask
        Molecules and labels.
    part : int64 array
        Rows of the part.
    positive_weight : float64 array of shape (tasks,)
        What a label of 1 counts; every other label counts 1.
    random_smiles : RandomSmiles, optional
        Writes each molecule in another random way each epoch; by default they are read as they are.
    seed : int, default 0
        Seed of the random ways, which follow from it, the epoch and the row alone, whichever process loads the row.
    """

    def __init__(
        self,
        task: PropertyTask,
        part: NDArray[np.int64],
        positive_weight: NDArray[np.float64],
        random_smiles: RandomSmiles | None = None,
        seed: int = 0,
    ) -> None:
        self._task = task
        self._part = task.labelled(part)
        self._positive_weight = positive_weight
        self._random_smiles = random_smiles
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Take note of a new epoch; the data loader of accelerate calls it."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._part)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = int(self._part[index])
        ids = self._task.rows.input_ids[row]
        if self._random_smiles is not None and ids is not None:
            ids = self._random_smiles.draw(ids, (self._seed, self._epoch, row))
        labels = self._task.data.targets[row]
        return {
            "input_ids": ids,
            "labels": labels,
            "label_weights": np.where(labels == 1, self._positive_weight, 1.0),
        }


def collate(molecules: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Make a batch: token ids padded with 0, labels and their weights as float32."""
    rows = [np.asarray(molecule["input_ids"], dtype=np.int64) for molecule in molecules]
    batch = {"input_ids": torch.from_numpy(pad(rows, value=0))}
    for name in ("labels", "label_weights"):
        batch[name] = torch.from_numpy(np.stack([molecule[name] for molecule in molecules])).float()
    return batch
