"""An encoder and the molecules that it is analysed on, each loaded, encoded and written anew once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from rdkit import Chem

from smilex.analysis.rank import gram, gram_rank
from smilex.baselines import ecfp4
from smilex.checks import count
from smilex.data.masking import IGNORED
from smilex.data.molecules import Molecule
from smilex.data.random_smiles import RandomSmiles
from smilex.data.rows import InvalidRow, encode_rows, warn_invalid
from smilex.embedding import check_pooling
from smilex.errors import SmilexError
from smilex.inference import TOKENS_PER_BATCH, run_rows, to_default_device
from smilex.modeling import ExLMForMaskedLM, ExLMModel
from smilex.modeling.loading import find_encoder, load_config, load_model
from smilex.objectives import ExLMObjective
from smilex.objectives.base import Batch
from smilex.tokenization import SmilesTokenizer


@dataclass(frozen=True)
class LayerRanks:
    """Effective rank of the vectors of real tokens, below the first layer and after each one.

    Attributes
    ----------
    without_masks, with_masks : tuple of int, one for each layer and one more
        First the embedding, last what the encoder gives out; the same tokens, in whole molecules and beside masks.
    tokens : int
        How many tokens were measured.
    """

    without_masks: tuple[int, ...]
    with_masks: tuple[int, ...]
    tokens: int


class Subject:
    """An encoder and molecules.

    Parameters
    ----------
    smiles : iterable of str or rdkit.Chem.Mol
        The molecules. Invalid ones are left out, as they have no place in a figure.
    encoder : str or Path
        Directory or name of an encoder.
    seed : int
        Seed of the masks and of the random SMILES.
    errors : {"report", "raise"}
        Whether invalid molecules are named in an `InvalidMoleculeWarning`, or the first one is an error.

    Attributes
    ----------
    rows : list of int
        Where the valid molecules stood in the input.
    ids : list of list of int
        Their canonical SMILES as token ids, with [CLS] and [SEP].
    invalid : list of InvalidRow
        The rows that were left out.

    Raises
    ------
    SmilexError
        If there is no such encoder, no valid molecule, or, with ``errors="raise"``, an invalid one.
    """

    def __init__(
        self,
        smiles: Iterable[str | Chem.Mol],
        encoder: str | Path,
        *,
        seed: int = 0,
        errors: Literal["report", "raise"] = "report",
    ) -> None:
        self.directory = find_encoder(encoder)
        self.config = load_config(self.directory)
        self._tokenizer = SmilesTokenizer()
        self._seed = count("seed", seed, at_least=0)
        found = encode_rows(smiles, self._tokenizer, max_length=self.config.max_position_embeddings, errors=errors)
        warn_invalid(found.invalid, len(found.input_ids))
        self.invalid = found.invalid
        self.rows = [row for row, ids in enumerate(found.input_ids) if ids is not None]
        self.ids = [ids for ids in found.input_ids if ids is not None]
        if not self.ids:
            raise SmilexError(f"none of {len(found.input_ids)} rows is a molecule: there is nothing to analyse")

    @cached_property
    def smiles(self) -> list[str]:
        """Canonical SMILES of the valid molecules: equal strings are one molecule."""
        return [str(text) for text in self._tokenizer.batch_decode(self.ids, skip_special_tokens=True)]

    @cached_property
    def _model(self) -> ExLMModel:
        return to_default_device(load_model(ExLMModel, self.directory))

    def vectors(self, pooling: Literal["mean", "cls"]) -> NDArray[np.float32]:
        """Vectors of the canonical SMILES, shape (n, d)."""
        return self._embed(self.ids, pooling)

    def twins(self, pooling: Literal["mean", "cls"]) -> NDArray[np.float32]:
        """Vectors of a random SMILES of each molecule, shape (n, d); the smallest can be written in one way only."""
        write = RandomSmiles(self.config.max_position_embeddings)
        written = [write.draw(ids, (self._seed, row)) for row, ids in zip(self.rows, self.ids, strict=True)]
        return self._embed(written, pooling)

    def _embed(self, ids: list[list[int]], pooling: Literal["mean", "cls"]) -> NDArray[np.float32]:
        check_pooling(pooling)
        model = self._model
        return run_rows(
            lambda tokens: model(tokens).pool(pooling),
            ids,
            self.config.hidden_size,
            pad_id=self.config.pad_token_id,
            device=model.device,
        )

    def fingerprints(self) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """ECFP4 of the molecules, and which of them RDKit reads again from their canonical SMILES: all but very few."""
        bits, valid = ecfp4(self.smiles)
        reason = "RDKit cannot read the canonical SMILES that it writes"
        unread = [InvalidRow(self.rows[place], self.smiles[place], reason) for place in np.flatnonzero(~valid)]
        warn_invalid(unread, len(valid))
        return bits, valid

    @property
    def predicts_tokens(self) -> bool:
        """Whether the directory holds the head of a masked language model."""
        return ExLMForMaskedLM.__name__ in (self.config.architectures or [])

    def mask_figures(self, mask_ratio: float) -> dict[str, float]:
        """Figures of the predictions at masks, as `ExLMObjective.evaluate` gives them."""
        model = to_default_device(load_model(ExLMForMaskedLM, self.directory))
        return self._objective(mask_ratio).evaluate(model, self._masked_batches(mask_ratio, model.device))

    @torch.inference_mode()
    def layer_ranks(self, mask_ratio: float, threshold: float) -> LayerRanks:
        """Effective rank for each layer; only d × d sums are kept of the vectors."""
        model = self._model
        shape = (self.config.num_hidden_layers + 1, self.config.hidden_size, self.config.hidden_size)
        whole, masked = np.zeros(shape), np.zeros(shape)
        tokens = 0
        for batch in self._masked_batches(mask_ratio, model.device):
            seen, labels = batch["input_ids"], batch["labels"]
            visible = labels == IGNORED
            for total, ids in ((masked, seen), (whole, torch.where(visible, seen, labels))):
                output = model(ids, output_hidden_states=True)
                real = output.attention_mask & (output.state_index == 0) & visible.gather(1, output.token_position)
                for layer, hidden in enumerate(output.hidden_states):
                    total[layer] += gram(hidden[real].float().cpu().numpy())
            tokens += int(real.sum())
        if not tokens:
            raise SmilexError(f"mask_ratio {mask_ratio} leaves no token of these molecules unmasked")
        without, beside = (tuple(gram_rank(total, threshold) for total in totals) for totals in (whole, masked))
        return LayerRanks(without, beside, tokens)

    def _objective(self, mask_ratio: float) -> ExLMObjective:
        return ExLMObjective(self.config, mask_ratio=mask_ratio, tokens_per_batch=TOKENS_PER_BATCH)

    def _masked_batches(self, mask_ratio: float, device: torch.device) -> Iterator[Batch]:
        """Every molecule once, with the same masks each time."""
        objective = self._objective(mask_ratio)
        molecules = [
            Molecule(smiles, np.array(ids, dtype=np.int64)) for smiles, ids in zip(self.smiles, self.ids, strict=True)
        ]
        batches = objective.batches(np.array([len(ids) for ids in self.ids]), seed=0)
        for number in range(batches.per_epoch):
            batch = objective.collate(
                [molecules[row] for row in batches[number]], np.random.default_rng((self._seed, number))
            )
            yield {name: tensor.to(device) for name, tensor in batch.items()}
