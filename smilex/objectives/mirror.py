"""Mirror-BERT: every molecule is its own positive, seen twice."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from smilex.checks import count
from smilex.data.batching import LengthBatches, pad
from smilex.data.molecules import Molecule
from smilex.data.random_smiles import RandomSmiles
from smilex.errors import SmilexError
from smilex.modeling import ExLMConfig, ExLMModel
from smilex.modeling.encoder import ExLMPreTrainedModel
from smilex.objectives.base import Batch, Objective

TEMPERATURE = 0.04
SPAN = 5
"""Tokens of a twin that one [MASK] replaces."""

SHORTEST_TO_MASK = 30
"""Characters of a SMILES from which on its twin gets a mask: shorter ones would lose too much."""


class MirrorObjective(Objective):
    """Bring two views of a molecule together, and keep different molecules apart.

    The twin of a molecule is the same SMILES, or a random SMILES of it; a span of it is masked; and dropout differs.
    A last stage of seconds, for an encoder that is pretrained already.

    Examples
    --------
    >>> objective = MirrorObjective(ExLMConfig.from_preset("tiny"), twins="random")
    >>> batch = objective.collate([Molecule.read("CCO"), Molecule.read("CCN")], np.random.default_rng(0))
    >>> batch["input_ids"].shape[0], batch["molecules"].tolist()
    (4, [1, 0, 1, 0])

    Notes
    -----
    Liu et al., EMNLP 2021, arXiv 2104.08027. Inputs: single molecules; `twins` "same" or "random" (SMILES), `pooling`
    "mean" or "cls" for the vector of a molecule. The spans count tokens where the paper's count characters. The states
    of the encoder stay as they are. Of several processes that train together, each takes its negatives from its own
    batch: more processes give more batches, not more negatives. Recommendation: `twins="random"`, where
    random SMILES shall find their molecule: forty batches raise the retrieval of an ExLM encoder from 0.645 to 0.700
    (`notebooks/03_objectives.ipynb`). Twins of the same SMILES leave it as it was (`benchmarks/results/objectives.md`).
    """

    name: ClassVar[str] = "mirror"
    model_class: ClassVar[type[ExLMPreTrainedModel]] = ExLMModel
    defaults: ClassVar[Mapping[str, Any]] = {
        "twins": "same",
        "pooling": "mean",
        "molecules_per_batch": 200,
        "learning_rate": 2e-5,
    }
    fixed_fields: ClassVar[Mapping[str, Any]] = {"hidden_dropout_prob": 0.1}

    def __init__(self, config: ExLMConfig, **settings: Any) -> None:
        super().__init__(config, **settings)
        for name, choices in (("twins", ("same", "random")), ("pooling", ("mean", "cls"))):
            if self.settings[name] not in choices:
                raise SmilexError(f"{name} is {' or '.join(choices)}, not {self.settings[name]!r}")
        count("molecules_per_batch", self.settings["molecules_per_batch"], at_least=2)
        self._random_smiles = RandomSmiles(self.config.max_position_embeddings)

    def batches(self, lengths: NDArray[np.integer], seed: int) -> LengthBatches:
        """Put as many molecules into each batch: they are each other's negatives, which like lengths make harder."""
        return LengthBatches(lengths, seed=seed, molecules_per_batch=self.settings["molecules_per_batch"])

    def collate(self, molecules: list[Molecule], rng: np.random.Generator) -> Batch:
        """Return `input_ids`, (2n, L), first the molecules, then their twins; `molecules`, (2n,), says who is who."""
        rows = [molecule.input_ids for molecule in molecules] + [self._twin(molecule, rng) for molecule in molecules]
        _, same = np.unique([molecule.smiles for molecule in molecules], return_inverse=True)
        return {
            "input_ids": torch.from_numpy(pad(rows, self.config.pad_token_id)),
            "molecules": torch.from_numpy(np.tile(same, 2)),
        }

    def _twin(self, molecule: Molecule, rng: np.random.Generator) -> NDArray[np.integer]:
        written = self._random_smiles.twin(molecule, rng) if self.settings["twins"] == "random" else molecule
        ids = written.input_ids
        last = len(ids) - 1 - SPAN  # the last place where a span can start without [SEP]
        if len(molecule.smiles) < SHORTEST_TO_MASK or last < 1:
            return ids
        start = int(rng.integers(1, last + 1))
        return np.concatenate([ids[:start], [self.config.mask_token_id], ids[start + SPAN :]])

    def losses(self, model: ExLMPreTrainedModel, batch: Batch) -> dict[str, Tensor]:
        """Return NT-Xent over the vectors of the batch."""
        vectors = model(batch["input_ids"]).pool(self.settings["pooling"])
        return {"loss": nt_xent(vectors, batch["molecules"], TEMPERATURE)}


def nt_xent(vectors: Tensor, molecules: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of finding each vector's twin among all others, by cosine similarity.

    Parameters
    ----------
    vectors : Tensor, shape (2n, d)
        n vectors, then their twins.
    molecules : Tensor, int64, shape (2n,)
        Equal for vectors of the same molecule. Of those, only the twin is compared with.
    temperature : float
        What similarities are divided by.

    Returns
    -------
    Tensor, shape ()
        Mean over the 2n vectors, in float32 or float64; 0 where there is nothing but twins.

    Notes
    -----
    Chen et al., ICML 2020, arXiv 2002.05709.

    Examples
    --------
    >>> vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])
    >>> round(nt_xent(vectors, torch.tensor([0, 1, 0, 1]), temperature=1.0).item(), 4)  # log(1 + 2 / e)
    0.5514
    """
    unit = F.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)
    row = torch.arange(len(unit), device=unit.device)
    twin = row.roll(len(unit) // 2)
    left_out = (molecules == molecules[:, None]) & (row != twin[:, None])
    similarity = (unit @ unit.T / temperature).masked_fill(left_out, -torch.inf)
    return F.cross_entropy(similarity, twin)
