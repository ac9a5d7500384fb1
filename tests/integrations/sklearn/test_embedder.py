import inspect

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import get_tags

from smilex import embed
from smilex.data.rows import InvalidMoleculeWarning
from smilex.errors import SmilexError
from smilex.integrations.sklearn import SmilesEmbedder

BAD = ["C1CC", "", None, 3, "not a molecule"]


def carbons(smiles):
    return np.array([text.lower().count("c") for text in smiles], dtype=float)


def descriptors(X):
    """Molecular weight and logP of one column of SMILES."""
    mols = [Chem.MolFromSmiles(text) for text in np.asarray(X, dtype=object).ravel()]
    return np.array([[Descriptors.MolWt(mol), Descriptors.MolLogP(mol)] for mol in mols])


def test_vectors_are_those_of_embed(encoder, molecules):
    for pooling in ("mean", "cls"):
        vectors = SmilesEmbedder(encoder, pooling).fit_transform(molecules)
        assert vectors.dtype == np.float32
        assert vectors.shape == (len(molecules), 32)
        np.testing.assert_allclose(vectors, embed(molecules, encoder, pooling), atol=1e-6)


def test_canonical_and_molecules(encoder):
    ways = ["OCC", "CCO", Chem.MolFromSmiles("CCO")]
    same = SmilesEmbedder(encoder).transform(ways)
    np.testing.assert_allclose(same, same[[0, 0, 0]], atol=1e-6)
    written = SmilesEmbedder(encoder, canonical=False).transform(ways)
    assert np.abs(written[0] - written[1]).max() > 1e-3


def test_rows_do_not_depend_on_each_other_or_their_order(encoder, molecules):
    embedder = SmilesEmbedder(encoder)
    vectors = embedder.transform(molecules)
    order = np.random.default_rng(0).permutation(len(molecules))
    np.testing.assert_allclose(embedder.transform(np.array(molecules)[order]), vectors[order], atol=1e-5)
    np.testing.assert_allclose(embedder.transform(molecules[5:8]), vectors[5:8], atol=1e-5)


def test_invalid_molecules_are_nan_rows_and_one_warning(encoder):
    mixed = [item for pair in zip(["CCO"] * len(BAD), BAD, strict=True) for item in pair]
    with pytest.warns(InvalidMoleculeWarning, match="5 of 10 rows hold no molecule") as caught:
        vectors = SmilesEmbedder(encoder).fit(mixed).transform(mixed)
    assert len(caught) == 1
    assert np.isnan(vectors).all(axis=1).tolist() == [False, True] * len(BAD)
    assert np.isfinite(vectors[::2]).all()
    with pytest.warns(InvalidMoleculeWarning):
        assert np.isnan(SmilesEmbedder(encoder).transform([np.nan, np.nan])).all()


@pytest.mark.parametrize(
    "wrap",
    [
        lambda embedder: embedder,
        lambda embedder: embedder.set_output(transform="pandas"),
        make_pipeline,
        lambda embedder: FeatureUnion([("vectors", embedder)]),
    ],
    ids=["alone", "pandas", "pipeline", "union"],
)
def test_the_warning_points_at_the_line_of_the_user_however_deep_the_embedder_is(encoder, wrap):
    transformer = wrap(SmilesEmbedder(encoder)).fit(["C"])
    line = inspect.currentframe().f_lineno + 2
    with pytest.warns(InvalidMoleculeWarning) as caught:
        transformer.transform(["C", "C1CC"])
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)]


def test_no_molecules_give_no_rows(encoder):
    assert SmilesEmbedder(encoder).transform([]).shape == (0, 32)


def test_fit_is_not_needed_and_checks_the_settings(encoder, molecules, tmp_path):
    embedder = SmilesEmbedder(encoder)
    assert embedder.fit(molecules, y=None) is embedder
    assert not [name for name in vars(embedder) if name.endswith("_")]
    for wrong, message in [
        (SmilesEmbedder(tmp_path), "not a model directory"),
        (SmilesEmbedder("no-such-encoder"), "no encoder 'no-such-encoder'"),
        (SmilesEmbedder(encoder, pooling="max"), "pooling"),
    ]:
        for call in (wrong.fit, wrong.transform):
            with pytest.raises(SmilexError, match=message):
                call(molecules)
    with pytest.raises(SmilexError, match="ColumnTransformer"):
        embedder.fit(pd.DataFrame({"a": molecules, "b": molecules}))


def test_pandas_output_has_names_and_the_index_of_x(encoder, molecules):
    embedder = SmilesEmbedder(encoder).set_output(transform="pandas")
    names = [f"smilesembedder{number}" for number in range(32)]
    assert embedder.get_feature_names_out().tolist() == names
    index = [f"m{number}" for number in range(len(molecules))][::-1]
    for X in (pd.Series(molecules, index=index), pd.DataFrame({"smiles": molecules}, index=index)):
        table = embedder.fit_transform(X)
        assert isinstance(table, pd.DataFrame)
        assert table.columns.tolist() == names
        assert table.index.tolist() == index
        np.testing.assert_array_equal(table.to_numpy(), SmilesEmbedder(encoder).transform(molecules))


def test_tags(encoder):
    tags = get_tags(SmilesEmbedder(encoder))
    assert tags.transformer_tags.preserves_dtype == []
    assert not tags.requires_fit
    assert not tags.non_deterministic
    assert tags.input_tags.string
    assert tags.input_tags.one_d_array
    assert tags.input_tags.allow_nan
    assert not tags.input_tags.two_d_array


def test_copies_give_equal_vectors(encoder, molecules, reloaded):
    embedder = SmilesEmbedder(encoder, "cls")
    vectors = embedder.transform(molecules)
    for copy in (clone(embedder), *reloaded(embedder)):
        assert copy.get_params() == embedder.get_params()
        np.testing.assert_array_equal(copy.transform(molecules), vectors)
    embedder.set_params(pooling="mean")
    assert np.abs(embedder.transform(molecules) - vectors).max() > 1e-3


def test_pipeline_learns_and_cross_validates(encoder, molecules, reloaded):
    y = carbons(molecules)
    pipeline = make_pipeline(SmilesEmbedder(encoder), StandardScaler(), Ridge())
    scores = cross_val_score(pipeline, molecules, y, cv=KFold(4, shuffle=True, random_state=0))
    assert scores.shape == (4,)
    assert scores.min() > 0.5
    fitted = pipeline.fit(molecules, y)
    predicted = fitted.predict(molecules)
    for copy in reloaded(fitted):
        np.testing.assert_array_equal(copy.predict(molecules), predicted)
    assert fitted[:-1].get_feature_names_out().tolist()[:1] == ["smilesembedder0"]


def test_descriptors_stand_beside_vectors_in_a_union(encoder, molecules):
    union = FeatureUnion(
        [
            ("vectors", SmilesEmbedder(encoder)),
            ("rdkit", FunctionTransformer(descriptors, feature_names_out=lambda *_: ["weight", "logp"])),
        ]
    )
    features = union.fit_transform(molecules)
    np.testing.assert_allclose(features[:, :32], embed(molecules, encoder), atol=1e-6)
    np.testing.assert_allclose(features[:, 32:], descriptors(molecules))


def test_column_transformer_takes_the_column_by_name_or_as_a_table(encoder, molecules):
    table = pd.DataFrame({"ph": np.linspace(2, 9, len(molecules)), "smiles": molecules})
    table.index = table.index[::-1]
    for column in ("smiles", ["smiles"]):
        columns = ColumnTransformer(
            [
                ("exlm", SmilesEmbedder(encoder), column),
                ("rdkit", FunctionTransformer(descriptors, feature_names_out=lambda *_: ["weight", "logp"]), column),
                ("ph", "passthrough", ["ph"]),
            ]
        ).set_output(transform="pandas")
        features = columns.fit_transform(table)
        assert features.columns.tolist() == [
            *(f"exlm__smilesembedder{number}" for number in range(32)),
            "rdkit__weight",
            "rdkit__logp",
            "ph__ph",
        ]
        assert features.index.equals(table.index)
        np.testing.assert_allclose(features.iloc[:, :32], embed(molecules, encoder), atol=1e-6)
        np.testing.assert_allclose(features["rdkit__weight"], descriptors(molecules)[:, 0])
        model = make_pipeline(clone(columns), StandardScaler(), Ridge()).fit(table, carbons(molecules))
        assert model.score(table, carbons(molecules)) > 0.9


def test_grid_search_chooses_the_pooling(encoder, molecules):
    pipeline = make_pipeline(SmilesEmbedder(encoder), StandardScaler(), Ridge())
    search = GridSearchCV(pipeline, {"smilesembedder__pooling": ["mean", "cls"]}, cv=2)
    search.fit(pd.Series(molecules), carbons(molecules))
    by_hand = [
        cross_val_score(clone(pipeline).set_params(**setting), molecules, carbons(molecules), cv=2).mean()
        for setting in search.cv_results_["params"]
    ]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], by_hand, rtol=1e-4)
    assert search.predict(molecules).shape == (len(molecules),)


def test_meta_estimators_pass_molecules_through(encoder, molecules):
    pipeline = make_pipeline(SmilesEmbedder(encoder), Ridge())
    model = TransformedTargetRegressor(pipeline, func=np.log1p, inverse_func=np.expm1)
    X = np.array(molecules)[:, None]
    assert model.fit(X, carbons(molecules)).predict(X).shape == (len(molecules),)
