import json
import pickle
import zipfile
from collections import Counter

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from skops import io as skops_io

from smilex.errors import SmilexError
from smilex.estimators import (
    STRENGTHS,
    TREES,
    TaskVectors,
    describe,
    fit_task,
    load_estimators,
    predict_tasks,
    save_estimators,
)

WIDTH = 6
KINDS = ("regression", "classification")


def task(kind, *, noise=1.0, weight=1.0, n=80):
    random = np.random.default_rng(0)
    vectors = 5 * random.normal(size=(n, WIDTH)) + 3
    values = vectors @ np.arange(WIDTH) + noise * random.normal(size=n)
    labels = values if kind == "regression" else (values > np.quantile(values, 0.7)).astype(float)
    half = n // 2
    return TaskVectors(kind, vectors[:half], labels[:half], vectors[half:], labels[half:], weight)


def by_hand(kind, given, strength):
    """The linear head without a pipeline: standardise, fit, predict the validation part."""
    mean, std = given.train_vectors.mean(0), given.train_vectors.std(0)
    train, valid = ((vectors - mean) / std for vectors in (given.train_vectors, given.valid_vectors))
    if kind == "regression":
        slopes = np.linalg.solve(
            train.T @ train + strength * np.eye(WIDTH), train.T @ (given.train_labels - given.train_labels.mean())
        )
        return valid @ slopes + given.train_labels.mean()
    weights = {0: 1.0, 1: given.positive_weight}
    fitted = LogisticRegression(C=1 / strength, class_weight=weights, max_iter=2000).fit(train, given.train_labels)
    return fitted.predict_proba(valid)[:, 1]


def loss_by_hand(kind, given, predicted):
    if kind == "regression":
        return ((predicted - given.valid_labels) ** 2).mean()
    weights = np.where(given.valid_labels == 1, given.positive_weight, 1)
    return log_loss(given.valid_labels, predicted, sample_weight=weights)


@pytest.mark.parametrize("noise", [0.01, 30.0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_linear_head_is_the_best_of_the_grid_on_the_validation_part(kind, noise):
    given = task(kind, noise=noise)
    estimator = fit_task("linear", given, 0)
    candidates = {strength: by_hand(kind, given, strength) for strength in STRENGTHS}
    best = min(candidates, key=lambda strength: loss_by_hand(kind, given, candidates[strength]))
    facts = describe(estimator)
    assert facts.get("alpha", 1 / facts.get("C", 1)) == pytest.approx(best)
    np.testing.assert_allclose(
        predict_tasks([estimator], given.valid_vectors)[:, 0], candidates[best], rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("kind", KINDS)
def test_noise_calls_for_more_regularisation(kind):
    chosen = [describe(fit_task("linear", task(kind, noise=noise), 0)) for noise in (0.01, 100.0)]
    strengths = [facts.get("alpha", 1 / facts.get("C", 1)) for facts in chosen]
    assert strengths[0] < strengths[1]


@pytest.mark.parametrize(("kind", "name"), [("regression", "alpha"), ("classification", "C")])
def test_without_validation_labels_the_strength_is_that_of_scikit_learn(kind, name):
    given = task(kind)
    given = TaskVectors(kind, given.train_vectors, given.train_labels, np.empty((0, WIDTH)), np.empty(0))
    assert describe(fit_task("linear", given, 0))[name] == 1.0


@pytest.mark.parametrize("weight", [1.0, 4.0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_forest_is_that_of_scikit_learn(kind, weight):
    given = task(kind, weight=weight)
    estimator = fit_task("random_forest", given, 3)
    assert len(estimator.estimators_) == TREES == 300
    predicted = predict_tasks([estimator], given.valid_vectors)[:, 0]
    if kind == "regression":
        oracle = RandomForestRegressor(300, random_state=3).fit(given.train_vectors, given.train_labels)
        expected = oracle.predict(given.valid_vectors)
    else:
        oracle = RandomForestClassifier(300, random_state=3, class_weight=None if weight == 1 else {0: 1, 1: weight})
        expected = oracle.fit(given.train_vectors, given.train_labels).predict_proba(given.valid_vectors)[:, 1]
    np.testing.assert_allclose(predicted, expected, rtol=1e-12)
    other = fit_task("random_forest", given, 4)
    assert not np.array_equal(predict_tasks([other], given.valid_vectors)[:, 0], predicted)


@pytest.mark.parametrize("head", ["linear", "random_forest"])
def test_a_weight_of_class_1_raises_its_probability(head):
    low, high = (predict_tasks([fit_task(head, task("classification", weight=w), 0)], V).mean() for w in (1.0, 20.0))
    assert high > low


V = task("classification").valid_vectors


@pytest.mark.parametrize("head", ["linear", "random_forest"])
@pytest.mark.parametrize(
    ("kind", "labels", "expected"),
    [
        ("classification", [1.0] * 4, 1.0),
        ("classification", [0.0] * 4, 0.0),
        ("classification", [], 0.5),
        ("regression", [2.5] * 4, 2.5),
        ("regression", [], 0.0),
        ("regression", [7.0], 7.0),
    ],
)
def test_labels_that_do_not_vary_give_a_constant(head, kind, labels, expected, tmp_path):
    given = TaskVectors(kind, np.ones((len(labels), WIDTH)), np.array(labels), np.empty((0, WIDTH)), np.empty(0))
    estimator = fit_task(head, given, 0)
    assert predict_tasks([estimator], V)[:, 0].tolist() == [expected] * len(V)
    save_estimators([estimator], tmp_path / "head")
    assert predict_tasks(load_estimators(tmp_path / "head", 1, WIDTH), V)[:, 0].tolist() == [expected] * len(V)


def all_kinds():
    return [fit_task(head, task(kind), 0) for head in ("linear", "random_forest") for kind in KINDS]


def test_what_is_loaded_predicts_what_was_saved(tmp_path, monkeypatch):
    estimators = all_kinds()
    save_estimators(estimators, tmp_path / "head")
    assert [path.name for path in tmp_path.iterdir()] == ["head"]
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, lambda *_, **__: pytest.fail("a pickle was read"))
    loaded = load_estimators(tmp_path / "head", 4, WIDTH)
    np.testing.assert_array_equal(predict_tasks(loaded, V), predict_tasks(estimators, V))


def test_the_file_holds_no_pickle_and_one_type_to_be_trusted(tmp_path):
    save_estimators(all_kinds(), tmp_path / "head")
    with zipfile.ZipFile(tmp_path / "head") as archive:
        kinds = Counter(name.rpartition(".")[2] for name in archive.namelist())
        assert set(kinds) == {"json", "npy"}
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as file:
                    np.load(file, allow_pickle=False)
    assert skops_io.get_untrusted_types(file=tmp_path / "head") == ["sklearn.tree._tree.Tree"]


class Marker:
    """Leaves a mark where it is made anew, as code in a pickle would."""

    made = 0

    def __init__(self, value):
        self.value = value

    def __setstate__(self, state):
        Marker.made += 1


def refused(path, match, tasks=1):
    with pytest.raises(SmilexError, match=match) as caught:
        load_estimators(path, tasks, WIDTH)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_type_that_nobody_trusts_is_refused_and_not_made(tmp_path):
    estimator = fit_task("linear", task("regression"), 0)
    estimator[-1].extra = Marker(1)
    skops_io.dump([estimator], tmp_path / "head")
    refused(tmp_path / "head", "Marker")
    assert Marker.made == 0


def test_a_pickle_is_refused_and_not_run(tmp_path):
    (tmp_path / "head").write_bytes(pickle.dumps([Marker(1)]))
    refused(tmp_path / "head", "not a zip file")
    assert Marker.made == 0


def test_pickles_inside_the_archive_are_refused(tmp_path):
    """An array of objects, which numpy would write as a pickle, in the place of an array of numbers."""
    save_estimators([fit_task("linear", task("regression"), 0)], tmp_path / "good")
    with zipfile.ZipFile(tmp_path / "good") as good, zipfile.ZipFile(tmp_path / "head", "w") as bad:
        for name in good.namelist():
            with bad.open(name, "w") as file:
                if name.endswith(".npy"):
                    np.save(file, np.array([Marker(1)], dtype=object), allow_pickle=True)
                else:
                    file.write(good.read(name))
    refused(tmp_path / "head", "allow_pickle=False")
    assert Marker.made == 0


X, Y = task("regression").train_vectors, task("regression").train_labels


def without_numbers():
    estimator = Ridge().fit(X, Y)
    estimator.intercept_ = np.nan
    return estimator


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({"a": 1}, "no list of 1 estimators"),
        ([], "no list of 1 estimators"),
        ([Ridge().fit(X, Y)] * 2, "no list of 1 estimators"),
        ([Lasso().fit(X, Y)], "Lasso"),
        ([make_pipeline(MinMaxScaler(), Ridge()).fit(X, Y)], "MinMaxScaler"),
        ([make_pipeline(StandardScaler(), Lasso()).fit(X, Y)], "Lasso"),
        ([make_pipeline(StandardScaler(), Ridge()).fit(X[:, :3], Y)], "6 features"),
        ([Ridge()], "not fitted"),
        ([without_numbers()], "no number"),
        ([3], "int"),
    ],
    ids=["dict", "none", "two", "estimator", "scaler", "last step", "narrow", "unfitted", "nan", "number"],
)
def test_what_is_no_head_is_refused(tmp_path, content, match):
    skops_io.dump(content, tmp_path / "head")
    refused(tmp_path / "head", match)


@pytest.mark.parametrize(
    ("field", "value"), [("left_child", 9999), ("left_child", 0), ("right_child", -1), ("feature", 99), ("feature", -7)]
)
def test_trees_that_lead_out_of_themselves_are_refused(tmp_path, field, value):
    forest = fit_task("random_forest", task("regression"), 0)
    tree = forest.estimators_[7].tree_
    state = tree.__getstate__()
    state["nodes"] = state["nodes"].copy()
    state["nodes"][field][0] = value
    tree.__setstate__(state)
    save_estimators([forest], tmp_path / "head")
    refused(tmp_path / "head", "a tree leads out of itself")


def test_trees_that_claim_another_number_of_nodes_are_refused(tmp_path):
    save_estimators([fit_task("random_forest", task("regression"), 0)], tmp_path / "good")
    with zipfile.ZipFile(tmp_path / "good") as good, zipfile.ZipFile(tmp_path / "head", "w") as bad:
        for name in good.namelist():
            content = good.read(name)
            if name == "schema.json":
                content = json.dumps(fewer_nodes(json.loads(content))).encode()
            bad.writestr(name, content)
    refused(tmp_path / "head", "not the nodes it claims")


def fewer_nodes(schema):
    """Lower every count of nodes in a schema by one."""
    if isinstance(schema, dict):
        return {key: count(value) if key == "node_count" else fewer_nodes(value) for key, value in schema.items()}
    return [fewer_nodes(value) for value in schema] if isinstance(schema, list) else schema


def count(node):
    return {**node, "content": str(int(node["content"]) - 1)}


@pytest.mark.parametrize("change", ["cut", "empty", "text"])
def test_files_that_are_not_whole_are_refused(tmp_path, change):
    save_estimators([fit_task("linear", task("regression"), 0)], tmp_path / "head")
    whole = (tmp_path / "head").read_bytes()
    contents = {"cut": whole[: len(whole) // 2], "empty": b"", "text": b"{}"}
    (tmp_path / "head").write_bytes(contents[change])
    refused(tmp_path / "head", "cannot use")
