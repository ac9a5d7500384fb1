"""scikit-learn's estimator checks.

`check_estimator` skips nearly all of its checks for estimators whose X is no table of numbers, as it does for
scikit-learn's own text vectorizers. Here those that need no data, or none that must be molecules, are called one by
one; those whose data can be SMILES are done on SMILES under the name of the check; and these remain, with the reason:

- check_estimators_dtypes, check_complex_data, check_dtype_object, check_estimators_nan_inf, check_fit2d_1sample,
  check_fit2d_1feature, check_fit2d_predict1d, check_regressors_int, check_transformer_preserve_dtypes,
  check_f_contiguous_array_estimator, check_readonly_memmap_input, check_array_api_input: they are about kinds of
  numbers in X, and X holds none (what is done with numbers is tested in test_arrays.py).
- check_n_features_in, check_n_features_in_after_fitting, check_dataframe_column_names_consistency,
  check_estimators_partial_fit_n_features: X is always one column, whatever its name, and there is no partial_fit.
- check_estimator_sparse_tag, check_estimator_sparse_array, check_estimator_sparse_matrix,
  check_positive_only_tag_during_fit, check_fit_non_negative: no sparse and no signed X.
- check_estimators_empty_data_messages: `transform` and `predict` of no rows give no rows, see test_models.py.
- check_supervised_y_2d: y of one column is one task of several and stays a column.
- check_supervised_y_no_nan: missing labels are allowed.
- check_classifiers_multilabel_representation_invariance: sparse and list-of-lists y of a numeric X.
- check_classifiers_multilabel_output_format_decision_function, check_decision_proba_consistency,
  check_regressors_no_decision_function: there is no decision_function.
- check_sample_weight_*, check_class_weight_*: `fit` takes no weights.
- check_param_validation: needs scikit-learn's private table of constraints; bad settings are tested in
  test_model_input.py.
- check_transformer_get_feature_names_out, check_set_output_transform_*, check_global_output_transform_pandas: see
  test_embedder.py.
- check_non_transformer_estimators_n_iter, check_transformer_n_iter: there is no max_iter.
- check_fit1d: a one-dimensional X is the usual one.
"""

import inspect
import warnings

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.validation import check_is_fitted

from smilex.errors import SmilexError
from smilex.integrations.sklearn import SmilesClassifier, SmilesEmbedder, SmilesRegressor

ESTIMATORS = [SmilesEmbedder, SmilesRegressor, SmilesClassifier]
CHECKS = [
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
]


@pytest.fixture
def make(encoder):
    """Make an estimator that a fit takes no time with."""

    def build(kind):
        quick = {} if kind is SmilesEmbedder else {"epochs": 1, "batch_size": 64, "random_state": 0}
        return kind(encoder, **quick)

    return build


@pytest.fixture(name="X")
def smiles(molecules):
    return np.array(molecules[:24])


@pytest.fixture
def y(X):
    return np.char.endswith(X, "O").astype(int)


def outputs(estimator, X):
    names = [name for name in ("transform", "predict", "predict_proba") if hasattr(estimator, name)]
    return [np.asarray(getattr(estimator, name)(X)) for name in names]


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("check", CHECKS)
def test_checks_that_need_no_data(check, kind):
    getattr(estimator_checks, check)(kind.__name__, kind())


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_check_estimator_skips_what_needs_a_table_of_numbers(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        results = estimator_checks.check_estimator(kind())
    assert {result["status"] for result in results} <= {"passed", "skipped"}
    assert "passed" in {result["status"] for result in results}


@pytest.mark.parametrize("kind", [SmilesRegressor, SmilesClassifier])
def test_check_estimators_unfitted(kind, X):
    estimator_checks.check_estimators_unfitted(kind.__name__, kind())
    with pytest.raises(NotFittedError):
        kind().score(X, np.zeros(len(X)))


def test_tags():
    for kind in (SmilesRegressor, SmilesClassifier):
        tags = get_tags(kind())
        assert tags.input_tags.string
        assert tags.input_tags.one_d_array
        assert tags.input_tags.allow_nan
        assert not tags.input_tags.two_d_array
        assert tags.target_tags.required
        assert tags.target_tags.multi_output
        assert tags.requires_fit
        assert not tags.non_deterministic
    assert get_tags(SmilesRegressor()).estimator_type == "regressor"
    classifier = get_tags(SmilesClassifier())
    assert classifier.estimator_type == "classifier"
    assert not classifier.classifier_tags.multi_class
    assert classifier.classifier_tags.multi_label


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_check_fit_returns_self_and_changes_no_parameter(make, kind, X, y):
    """Also check_estimators_overwrite_params, check_dont_overwrite_parameters and check_dict_unchanged."""
    estimator = make(kind)
    before = dict(vars(estimator))
    hashes = {name: joblib.hash(value) for name, value in estimator.get_params().items()}
    assert estimator.fit(X, y) is estimator
    assert {name: joblib.hash(value) for name, value in estimator.get_params().items()} == hashes
    added = set(vars(estimator)) - set(before)
    assert all(name.startswith("_") or name.endswith("_") for name in added)
    fitted = dict(vars(estimator))
    outputs(estimator, X)
    assert vars(estimator) == fitted


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_check_fit_check_is_fitted(make, kind, X, y):
    estimator = make(kind)
    if kind is not SmilesEmbedder:
        with pytest.raises(NotFittedError):
            check_is_fitted(estimator)
    check_is_fitted(estimator.fit(X, y))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_check_fit_idempotent_and_pipeline_consistency(make, kind, X, y):
    first = make(kind).fit(X, y)
    expected = outputs(first, X)
    for again in (first.fit(X, y), clone(first).fit(X, y), make_pipeline(make(kind)).fit(X, y)):
        for result, wanted in zip(outputs(again, X), expected, strict=True):
            np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_check_methods_sample_order_and_subset_invariance(make, kind, X, y):
    estimator = make(kind).fit(X, y)
    order = np.random.default_rng(0).permutation(len(X))
    one_by_one = zip(*(outputs(estimator, X[row : row + 1]) for row in range(len(X))), strict=True)
    for whole, shuffled, single in zip(outputs(estimator, X), outputs(estimator, X[order]), one_by_one, strict=True):
        np.testing.assert_allclose(shuffled, whole[order], atol=1e-5)
        np.testing.assert_allclose(np.concatenate(single), whole, atol=1e-5)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_check_fit_score_takes_y(make, kind, X, y):
    estimator = make(kind).fit(X, y)
    for name in ("fit", "score", "fit_transform"):
        if hasattr(estimator, name):
            assert list(inspect.signature(getattr(estimator, name)).parameters)[1] == "y"
            getattr(estimator, name)(X, y)


@pytest.mark.parametrize("kind", [SmilesRegressor, SmilesClassifier])
def test_check_requires_y_none(make, kind, X):
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        make(kind).fit(X, None)
    with pytest.raises(SmilexError, match="y has 3 rows and X has 24"):
        make(kind).fit(X, [0, 1, 0])


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_check_data_not_an_array(make, kind, X, y):
    """check_classifier_data_not_an_array, check_regressor_data_not_an_array, check_transformer_data_not_an_array."""
    wrapped = estimator_checks._NotAnArray(X)
    estimator = make(kind).fit(wrapped, estimator_checks._NotAnArray(y))
    for result, wanted in zip(outputs(estimator, wrapped), outputs(make(kind).fit(X, y), X), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_check_multioutput(make, X, y):
    """check_regressor_multioutput, check_classifier_multioutput, check_classifiers_multilabel_output_format_…."""
    two = np.stack([y, 1 - y], axis=1)
    regressor = make(SmilesRegressor).fit(X, two)
    assert regressor.predict(X).dtype == np.float64
    assert regressor.predict(X).shape == two.shape
    classifier = make(SmilesClassifier).fit(X, two)
    assert classifier.predict(X).shape == two.shape
    assert classifier.predict(X).dtype == two.dtype
    for task in classifier.predict_proba(X):
        assert task.shape == (len(X), 2)
        np.testing.assert_allclose(task.sum(axis=1), 1)


def test_check_classifiers_one_label_and_multiclass(make, X):
    """Also check_classifier_not_supporting_multiclass and check_classifiers_regression_target."""
    with pytest.raises(ValueError, match="class"):
        make(SmilesClassifier).fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        make(SmilesClassifier).fit(X, np.arange(len(X)) % 3)
    with pytest.raises(ValueError, match="SmilesRegressor for measured values"):
        make(SmilesClassifier).fit(X, np.linspace(0, 1, len(X)))
