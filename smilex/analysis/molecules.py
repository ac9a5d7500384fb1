"""The figures of an encoder on molecules, one function each; `smilex.analysis.analyze` gives them all.

Molecules are strings or RDKit molecules, in any way of writing. Invalid ones have no place in a figure: they are left
out and named in one `InvalidMoleculeWarning`, or, with ``errors="raise"``, they are an error. Every function raises a
`SmilexError` for that, for an encoder that cannot be loaded, and where no molecule is valid.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from rdkit import Chem

from smilex import DEFAULT_ENCODER
from smilex.analysis.similarity import alignment, neighbourhood_agreement, retrieval_accuracy, uniformity
from smilex.analysis.subject import LayerRanks, Subject

Smiles = Iterable[str | Chem.Mol]
Pooling = Literal["mean", "cls"]
Errors = Literal["report", "raise"]


class AlignmentAndUniformity(NamedTuple):
    """How close twins are, and how evenly molecules spread; for both, lower is better."""

    alignment: float
    uniformity: float


def layer_ranks(
    smiles: Smiles,
    encoder: str | Path = DEFAULT_ENCODER,
    *,
    threshold: float = 0.9,
    mask_ratio: float = 0.15,
    seed: int = 0,
    errors: Errors = "report",
) -> LayerRanks:
    """Effective rank of the vectors of real tokens, layer by layer, without and with [MASK] in the input [1]_.

    Real tokens are those that write the molecule: no special token and no mask. The tokens that the masks leave are
    measured, both times the same ones, so that a difference comes from the masks beside them alone.

    Parameters
    ----------
    smiles : iterable of str or rdkit.Chem.Mol
        The molecules.
    encoder : str or Path
        Directory of a saved model, or the name of an encoder that ships with the package.
    threshold : float, default 0.9
        Share of the squared singular values, see `effective_rank`.
    mask_ratio : float, default 0.15
        Share of the tokens to mask.
    seed : int, default 0
        Seed of the masks.
    errors : {"report", "raise"}, default "report"
        What to do with invalid molecules.

    Returns
    -------
    LayerRanks

    References
    ----------
    .. [1] Meng et al., ICLR 2024, arXiv 2302.02060.

    Examples
    --------
    >>> import tempfile
    >>> from smilex.modeling import ExLMConfig, ExLMModel
    >>> directory = tempfile.mkdtemp()
    >>> ExLMModel(ExLMConfig.from_preset("tiny")).save_pretrained(directory)
    >>> ranks = layer_ranks(["CCO", "c1ccccc1"], directory)
    >>> len(ranks.with_masks), ranks.with_masks[0]  # the embedding and 4 layers; C, O, c and the ring digit
    (5, 3)
    """
    return Subject(smiles, encoder, seed=seed, errors=errors).layer_ranks(mask_ratio, threshold)


def prediction_entropy(
    smiles: Smiles,
    encoder: str | Path = DEFAULT_ENCODER,
    *,
    mask_ratio: float = 0.15,
    seed: int = 0,
    errors: Errors = "report",
) -> float:
    """Mean entropy of what a masked language model predicts at a mask, in nats.

    Each mask is read by itself; with several states per mask, the prediction sums over the paths through them.

    Parameters
    ----------
    smiles : iterable of str or rdkit.Chem.Mol
        The molecules.
    encoder : str or Path
        Directory of a model that `smilex.pretrain` saved, or the name of an encoder that ships with the package. It
        must have the head that predicts tokens.
    mask_ratio : float, default 0.15
        Share of the tokens to mask.
    seed : int, default 0
        Seed of the masks.
    errors : {"report", "raise"}, default "report"
        What to do with invalid molecules.

    Returns
    -------
    float
        From 0 (certain) to the logarithm of the vocabulary's size.

    Examples
    --------
    >>> import tempfile
    >>> from smilex.modeling import ExLMConfig, ExLMForMaskedLM
    >>> directory = tempfile.mkdtemp()
    >>> ExLMForMaskedLM(ExLMConfig.from_preset("tiny", vocab_size=512)).save_pretrained(directory)
    >>> 5.5 < prediction_entropy(["CCO", "c1ccccc1"], directory) < 6.24  # untrained: almost log 512
    True
    """
    return Subject(smiles, encoder, seed=seed, errors=errors).mask_figures(mask_ratio)["entropy"]


def retrieval(
    smiles: Smiles,
    encoder: str | Path = DEFAULT_ENCODER,
    pooling: Pooling = "mean",
    *,
    seed: int = 0,
    errors: Errors = "report",
) -> float:
    """Share of the molecules whose random SMILES is nearest to their canonical SMILES, among those of all molecules.

    Parameters
    ----------
    smiles : iterable of str or rdkit.Chem.Mol
        The molecules. Where one stands twice, both rows are right answers.
    encoder : str or Path
        Directory of a saved model, or the name of an encoder that ships with the package.
    pooling : {"mean", "cls"}, default "mean"
        As for `smilex.embed`.
    seed : int, default 0
        Seed of the random SMILES.
    errors : {"report", "raise"}, default "report"
        What to do with invalid molecules.

    Returns
    -------
    float
        Accuracy@1, see `retrieval_accuracy`; the error that xsim reports is 1 minus this.

    Examples
    --------
    >>> import tempfile
    >>> from smilex.modeling import ExLMConfig, ExLMModel
    >>> directory = tempfile.mkdtemp()
    >>> ExLMModel(ExLMConfig.from_preset("tiny")).save_pretrained(directory)
    >>> retrieval(["C", "N", "O", "O"], directory)  # each can be written in one way only
    1.0
    """
    subject = Subject(smiles, encoder, seed=seed, errors=errors)
    return retrieval_accuracy(subject.twins(pooling), subject.vectors(pooling), subject.smiles)


def alignment_and_uniformity(
    smiles: Smiles,
    encoder: str | Path = DEFAULT_ENCODER,
    pooling: Pooling = "mean",
    *,
    seed: int = 0,
    errors: Errors = "report",
) -> AlignmentAndUniformity:
    """Distance of canonical and random SMILES of a molecule, and the spread of the canonical ones over the sphere.

    Parameters
    ----------
    smiles, encoder, pooling, seed, errors
        As for `retrieval`. A molecule that stands twice counts twice.

    Returns
    -------
    AlignmentAndUniformity
        See `alignment` and `uniformity`.

    Examples
    --------
    >>> import tempfile
    >>> from smilex.modeling import ExLMConfig, ExLMModel
    >>> directory = tempfile.mkdtemp()
    >>> ExLMModel(ExLMConfig.from_preset("tiny")).save_pretrained(directory)
    >>> figures = alignment_and_uniformity(["CCO", "c1ccccc1", "CC(=O)N"], directory)
    >>> figures.alignment >= 0 >= figures.uniformity
    True
    """
    subject = Subject(smiles, encoder, seed=seed, errors=errors)
    vectors = subject.vectors(pooling)
    return AlignmentAndUniformity(alignment(vectors, subject.twins(pooling)), uniformity(vectors))


def tanimoto_agreement(
    smiles: Smiles,
    encoder: str | Path = DEFAULT_ENCODER,
    pooling: Pooling = "mean",
    *,
    seed: int = 0,
    errors: Errors = "report",
) -> float | None:
    """Spearman's correlation of cosine similarity with Tanimoto similarity on ECFP4, over pairs of molecules.

    Parameters
    ----------
    smiles, encoder, pooling, errors
        As for `retrieval`.
    seed : int, default 0
        Seed of the pairs where there are too many for all.

    Returns
    -------
    float or None
        See `neighbourhood_agreement`.

    Examples
    --------
    >>> import tempfile
    >>> from smilex.modeling import ExLMConfig, ExLMModel
    >>> directory = tempfile.mkdtemp()
    >>> ExLMModel(ExLMConfig.from_preset("tiny")).save_pretrained(directory)
    >>> -1 <= tanimoto_agreement(["CCO", "CCN", "CCCO", "c1ccccc1"], directory) <= 1
    True
    """
    subject = Subject(smiles, encoder, seed=seed, errors=errors)
    bits, valid = subject.fingerprints()
    return neighbourhood_agreement(subject.vectors(pooling)[valid], bits[valid], seed=seed)
