"""All figures of an encoder at once."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rdkit import Chem

from smilex.analysis.similarity import alignment, neighbourhood_agreement, retrieval_accuracy, uniformity
from smilex.analysis.subject import Subject


@dataclass(frozen=True)
class Analysis:
    """What an encoder does with molecules.

    Attributes
    ----------
    encoder : str
        Its directory.
    molecules, invalid : int
        Rows that were analysed, and rows that were left out.
    pooling, mask_ratio, seed
        The settings.
    effective_rank, effective_rank_with_masks : tuple of int
        Of real tokens, for the embedding and after each layer; see `smilex.analysis.layer_ranks`.
    entropy : float or None
        Of the predictions at masks, in nats; None where the encoder has no head that predicts tokens.
    retrieval_accuracy, retrieval_error : float
        Random SMILES that are nearest to their canonical SMILES, as a share, and 1 minus it.
    alignment, uniformity : float
        See `smilex.analysis.alignment_and_uniformity`.
    neighbourhood_agreement : float or None
        Spearman's correlation of cosine with Tanimoto similarity; None where it is undefined.
    """

    encoder: str
    molecules: int
    invalid: int
    pooling: str
    mask_ratio: float
    seed: int
    effective_rank: tuple[int, ...]
    effective_rank_with_masks: tuple[int, ...]
    entropy: float | None
    retrieval_accuracy: float
    retrieval_error: float
    alignment: float
    uniformity: float
    neighbourhood_agreement: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return asdict(self)


def analyze(
    encoder: str | Path,
    smiles: Iterable[str | Chem.Mol],
    pooling: Literal["mean", "cls"] = "mean",
    *,
    mask_ratio: float = 0.15,
    seed: int = 0,
    errors: Literal["report", "raise"] = "report",
) -> Analysis:
    """Compute all figures of `smilex.analysis` for an encoder.

    Parameters
    ----------
    encoder : str or Path
        Directory of a saved model, or the name of an encoder that ships with the package.
    smiles : iterable of str or rdkit.Chem.Mol
        At least two molecules. Pairs of them are compared in blocks, so that 10 000 fit into 2 GB.
    pooling : {"mean", "cls"}, default "mean"
        As for `smilex.embed`.
    mask_ratio : float, default 0.15
        Share of the tokens to mask, for entropy and rank.
    seed : int, default 0
        Seed of the masks, the random SMILES and the pairs.
    errors : {"report", "raise"}, default "report"
        Leave invalid molecules out and name them in an `InvalidMoleculeWarning`, or raise an error.

    Returns
    -------
    Analysis

    Raises
    ------
    SmilexError
        If there is no such encoder, fewer than two molecules are valid, a setting is out of range, or, with
        ``errors="raise"``, a molecule is invalid.

    Examples
    --------
    >>> import tempfile
    >>> from smilex.modeling import ExLMConfig, ExLMModel
    >>> directory = tempfile.mkdtemp()
    >>> ExLMModel(ExLMConfig.from_preset("tiny")).save_pretrained(directory)
    >>> analysis = analyze(directory, ["CCO", "c1ccccc1", "CC(=O)N"])
    >>> analysis.molecules, analysis.entropy, len(analysis.effective_rank)
    (3, None, 5)
    """
    subject = Subject(smiles, encoder, seed=seed, errors=errors)
    vectors, twins = subject.vectors(pooling), subject.twins(pooling)
    ranks = subject.layer_ranks(mask_ratio, threshold=0.9)
    bits, valid = subject.fingerprints()
    accuracy = retrieval_accuracy(twins, vectors, subject.smiles)
    return Analysis(
        encoder=str(subject.directory),
        molecules=len(subject.rows),
        invalid=len(subject.invalid),
        pooling=pooling,
        mask_ratio=mask_ratio,
        seed=seed,
        effective_rank=ranks.without_masks,
        effective_rank_with_masks=ranks.with_masks,
        entropy=subject.mask_figures(mask_ratio)["entropy"] if subject.predicts_tokens else None,
        retrieval_accuracy=accuracy,
        retrieval_error=1.0 - accuracy,
        alignment=alignment(vectors, twins),
        uniformity=uniformity(vectors),
        neighbourhood_agreement=neighbourhood_agreement(vectors[valid], bits[valid], seed=seed),
    )
