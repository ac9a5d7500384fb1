"""Vectors of molecules."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from smilex import DEFAULT_ENCODER
from smilex.data.rows import encode_rows, warn_invalid
from smilex.errors import SmilexError
from smilex.inference import run_rows, to_default_device
from smilex.modeling import ExLMModel
from smilex.modeling.loading import find_encoder, load_model
from smilex.tokenization import SmilesTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rdkit import Chem


def embed(
    smiles: "Iterable[str | Chem.Mol]",
    encoder: str | Path = DEFAULT_ENCODER,
    pooling: Literal["mean", "cls"] = "mean",
    *,
    canonical: bool = True,
    errors: Literal["report", "raise"] = "report",
) -> NDArray[np.float32]:
    """Encode molecules as vectors.

    Parameters
    ----------
    smiles : iterable of str or rdkit.Chem.Mol
        The molecules.
    encoder : str or Path
        Directory of a model that `smilex.pretrain` or `smilex.finetune` saved, or the name of an encoder that ships
        with the package.
    pooling : {"mean", "cls"}, default "mean"
        Mean over the tokens of the molecule, or the first state of [CLS].
    canonical : bool, default True
        Rewrite each molecule as canonical SMILES first, so that its vector does not depend on how it is written.
    errors : {"report", "raise"}, default "report"
        What to do with an invalid molecule: a row of NaN and a line in one `InvalidMoleculeWarning`, or an error.

    Returns
    -------
    float32 array, shape (n, d)
        One row per input, in order.

    Raises
    ------
    SmilexError
        If there is no such encoder, `smiles` is a single string, or, with ``errors="raise"``, a molecule is invalid.

    Examples
    --------
    >>> from smilex.modeling import ExLMConfig
    >>> import tempfile
    >>> directory = tempfile.mkdtemp()
    >>> ExLMModel(ExLMConfig.from_preset("tiny")).save_pretrained(directory)
    >>> embed(["CCO", "c1ccccc1"], directory).shape
    (2, 128)
    """
    check_pooling(pooling)
    model = to_default_device(load_model(ExLMModel, find_encoder(encoder)))
    rows = encode_rows(
        smiles,
        SmilesTokenizer(),
        max_length=model.config.max_position_embeddings,
        canonical=canonical,
        errors=errors,
    )
    warn_invalid(rows.invalid, len(rows.input_ids))
    return embed_rows(model, rows.input_ids, pooling)


def check_pooling(pooling: object) -> None:
    """Refuse whatever is no way to pool.

    Raises
    ------
    SmilexError
        If `pooling` is neither "mean" nor "cls".
    """
    if pooling not in ("mean", "cls"):
        raise SmilexError(f"pooling is 'mean' or 'cls', not {pooling!r}")


def embed_rows(model: ExLMModel, rows: "Sequence[Sequence[int] | None]", pooling: str) -> NDArray[np.float32]:
    """Encode tokenised molecules where the model is; (n, d), NaN where a row is None."""
    return run_rows(
        lambda ids: model(ids).pool(pooling),
        rows,
        model.config.hidden_size,
        pad_id=model.config.pad_token_id,
        device=model.device,
    )
