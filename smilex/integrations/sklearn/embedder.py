"""Vectors of a pretrained encoder as scikit-learn features."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags

from smilex import DEFAULT_ENCODER
from smilex.embedding import check_pooling, embed
from smilex.integrations.sklearn.arrays import read_molecules, tag_molecules
from smilex.modeling.loading import find_encoder, load_config


class SmilesEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Vectors of molecules from a pretrained encoder: `smilex.embed` as a scikit-learn transformer.

    It learns nothing from data: `transform` works without `fit`, which only checks the settings and X.

    Parameters
    ----------
    encoder : str or Path
        Directory of a model that `smilex.pretrain` or `smilex.finetune` saved, or the name of an encoder that ships
        with the package.
    pooling : {"mean", "cls"}, default "mean"
        Mean over the tokens of the molecule, or the first state of [CLS].
    canonical : bool, default True
        Rewrite each molecule as canonical SMILES first, so that its vector does not depend on how it is written.

    Notes
    -----
    X is a list, an array or a Series of SMILES strings or RDKit molecules, or a table of one column; in a
    ``ColumnTransformer`` name the column as ``"smiles"`` or ``["smiles"]``. A molecule that cannot be used gives a row
    of NaN and a line in one `smilex.data.rows.InvalidMoleculeWarning`.

    Most of scikit-learn's estimator checks feed tables of numbers and are skipped, as for its own text vectorizers
    (``input_tags.two_d_array`` is False).

    Examples
    --------
    >>> import tempfile
    >>> from smilex.modeling import ExLMConfig, ExLMModel
    >>> directory = tempfile.mkdtemp()
    >>> ExLMModel(ExLMConfig.from_preset("tiny")).save_pretrained(directory)
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> pipeline = make_pipeline(SmilesEmbedder(directory), Ridge())
    >>> pipeline.fit(["CCO", "c1ccccc1", "CCN"], [-0.3, 2.1, -0.1]).predict(["CCC"]).shape
    (1,)
    """

    def __init__(
        self,
        encoder: str | Path = DEFAULT_ENCODER,
        pooling: Literal["mean", "cls"] = "mean",
        canonical: bool = True,
    ) -> None:
        self.encoder = encoder
        self.pooling = pooling
        self.canonical = canonical

    def fit(self, X: Any, y: object = None) -> "SmilesEmbedder":
        """Check the settings and that X holds molecules.

        Parameters
        ----------
        X : array-like of shape (n,) or (n, 1)
            SMILES strings or RDKit molecules.
        y : ignored
            Part of scikit-learn's interface.

        Returns
        -------
        SmilesEmbedder

        Raises
        ------
        SmilexError
            If there is no such encoder or pooling, or X is no column of molecules.
        """
        check_pooling(self.pooling)
        load_config(find_encoder(self.encoder))
        read_molecules(X)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Encode molecules as vectors.

        Parameters
        ----------
        X : array-like of shape (n,) or (n, 1)
            SMILES strings or RDKit molecules.

        Returns
        -------
        float32 array, shape (n, d)
            One row per molecule, in order; NaN where it cannot be used. A table after ``set_output``.

        Raises
        ------
        SmilexError
            If there is no such encoder or pooling, or X is no column of molecules.
        """
        return embed(read_molecules(X), self.encoder, self.pooling, canonical=self.canonical)

    @property
    def _n_features_out(self) -> int:
        # get_feature_names_out of scikit-learn's mixin reads it: smilesembedder0, smilesembedder1, …
        return load_config(find_encoder(self.encoder)).hidden_size

    def __sklearn_tags__(self) -> Tags:
        tags = tag_molecules(super().__sklearn_tags__())
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = []  # always float32
        return tags
