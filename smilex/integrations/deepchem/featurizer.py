"""Vectors of a pretrained encoder as DeepChem features."""

import hashlib
import logging
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from smilex import DEFAULT_ENCODER
from smilex.data.rows import EncodedRows, encode_rows
from smilex.embedding import check_pooling
from smilex.inference import run_rows, to_default_device
from smilex.integrations.deepchem.library import deepchem
from smilex.modeling import ExLMModel
from smilex.modeling.loading import find_encoder, load_config, load_model
from smilex.tokenization import SmilesTokenizer

logger = logging.getLogger(__name__)


class ExLMFeaturizer(deepchem.feat.MolecularFeaturizer):
    """Vectors of molecules from a pretrained encoder, as DeepChem features.

    All molecules go through the encoder in batches; the model is loaded once, at first use. The vectors are those of
    `smilex.embed`.

    Parameters
    ----------
    encoder : str or Path
        Directory of a model that `smilex.pretrain` or `smilex.finetune` saved, or the name of an encoder that ships
        with the package.
    pooling : {"mean", "cls"}, default "mean"
        Mean over the tokens of the molecule, or the first state of [CLS].

    Raises
    ------
    SmilexError
        If there is no such encoder or pooling.

    Notes
    -----
    A molecule that cannot be used follows DeepChem's convention: a warning in the log and an empty array in its row,
    which makes the result an object array, shape (n,), of float32 arrays. ``CSVLoader`` leaves such rows out of
    its dataset; ``InMemoryLoader`` stops at them, as it does with every featurizer.

    ``str(featurizer)``, by which ``dc.molnet`` names its cache, holds a hash of the weights, so that two encoders
    never share cached features.

    Examples
    --------
    >>> import tempfile
    >>> from smilex.modeling import ExLMConfig
    >>> directory = tempfile.mkdtemp()
    >>> ExLMModel(ExLMConfig.from_preset("tiny")).save_pretrained(directory)
    >>> featurizer = ExLMFeaturizer(directory)
    >>> featurizer.featurize(["CCO", "c1ccccc1"]).shape
    (2, 128)
    """

    def __init__(self, encoder: str | Path = DEFAULT_ENCODER, pooling: Literal["mean", "cls"] = "mean") -> None:
        super().__init__()
        check_pooling(pooling)
        load_config(find_encoder(encoder))  # so that a wrong directory is an error here, not after the data are read
        self.encoder = encoder
        self.pooling = pooling

    def featurize(
        self, datapoints: str | Chem.Mol | Iterable[str | Chem.Mol], log_every_n: int = 1000, **kwargs: object
    ) -> NDArray[np.float32] | NDArray[np.object_]:
        """Encode molecules.

        Parameters
        ----------
        datapoints : str, rdkit.Chem.Mol, or iterable of them
            The molecules.
        log_every_n : int, default 1000
            Part of DeepChem's interface; the batches make one line of the log.
        **kwargs : object
            What DeepChem tells of each molecule besides, as ``SDFLoader`` does the coordinates of its atoms;
            the encoder reads none of it.

        Returns
        -------
        float32 array, shape (n, d)
            One row per molecule, in order. Where some cannot be used: object array, shape (n,), of arrays of shape
            (d,) or (0,); where none can, shape (n, 0).
        """
        molecules = [datapoints] if isinstance(datapoints, str | Chem.Mol) else list(datapoints)
        logger.info("Featurizing %d datapoints", len(molecules))
        model = self._model
        config = model.config
        rows = encode_rows(molecules, SmilesTokenizer(), max_length=config.max_position_embeddings)
        vectors = run_rows(
            lambda ids: model(ids).pool(self.pooling),
            rows.input_ids,
            config.hidden_size,
            pad_id=config.pad_token_id,
            device=model.device,
        )
        return _empty_rows(vectors, rows) if rows.invalid else vectors

    @cached_property
    def _model(self) -> ExLMModel:
        return to_default_device(load_model(ExLMModel, find_encoder(self.encoder)))

    def __getstate__(self) -> dict[str, Any]:
        # Another process reads the weights from their directory, in place of a copy in every pickle.
        return {name: value for name, value in vars(self).items() if name != "_model"}

    def __str__(self) -> str:
        directory = find_encoder(self.encoder).resolve()
        digest = hashlib.sha256()
        for path in sorted([directory / "config.json", *directory.glob("*.safetensors")]):
            digest.update(path.read_bytes())
        pooling = "" if self.pooling == "mean" else f"_pooling_{self.pooling}"
        return f"{type(self).__name__}_encoder_{directory.name}-{digest.hexdigest()[:12]}{pooling}"


def _empty_rows(vectors: NDArray[np.float32], rows: EncodedRows) -> NDArray[Any]:
    """Put an empty array in place of each invalid molecule and log it, as DeepChem's featurizers do."""
    features = list(vectors)
    for row in rows.invalid:
        logger.warning("Failed to featurize datapoint %d, %s. Appending empty array: %s", *row)
        features[row.index] = np.array([], dtype=np.float32)
    if len(rows.invalid) == len(features):
        return np.asarray(features)
    return np.asarray(features, dtype=object)
