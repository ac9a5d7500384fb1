import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import r2_score

from smilex.data.corpus import load_corpus
from smilex.data.descriptor_targets import load_descriptor_targets
from smilex.data.descriptors import DESCRIPTOR_NAMES
from smilex.data.molecules import Molecule
from smilex.errors import SmilexError
from smilex.modeling import ExLMConfig
from smilex.objectives.descriptors import DescriptorsObjective, masked_squared_error
from smilex.tokenization import SmilesTokenizer

CONFIG = ExLMConfig.from_preset("tiny", vocab_size=len(SmilesTokenizer()))
SMILES = ["CCO", "c1ccccc1", "CC(=O)Oc1ccccc1C(=O)O", "C[Hg]Cl", "CCN", "CC(=O)O"]


def molecules(targets):
    return [Molecule.read(text)._replace(targets=row) for text, row in zip(SMILES, targets, strict=False)]


def random_targets(seed=0, unknown=0.3):
    rng = np.random.default_rng(seed)
    targets = rng.normal(size=(len(SMILES), len(DESCRIPTOR_NAMES)))
    targets[rng.random(targets.shape) < unknown] = np.nan
    return targets.astype(np.float16)


def loop(predicted, targets):
    """Mean squared error where the target is known, one by one, in float64."""
    errors = [
        (float(p) - float(t)) ** 2
        for row, known in zip(predicted, targets, strict=True)
        for p, t in zip(row, known, strict=True)
        if t == t  # noqa: PLR0124 (NaN differs from itself)
    ]
    return sum(errors) / len(errors) if errors else 0.0


@given(st.integers(0, 1000), st.sampled_from([0.0, 0.3, 0.99, 1.0]))
def test_loss_equals_a_plain_loop(seed, unknown):
    rng = np.random.default_rng(seed)
    predicted, targets = rng.normal(size=(2, 5, 7))
    targets[rng.random(targets.shape) < unknown] = np.nan
    found = masked_squared_error(torch.from_numpy(predicted), torch.from_numpy(targets))
    assert found.dtype == torch.float64
    assert found.item() == pytest.approx(loop(predicted, targets), rel=1e-12)


def test_unknown_values_have_no_part_in_the_gradient():
    predicted = torch.zeros(2, 3, requires_grad=True)
    targets = torch.tensor([[1.0, torch.nan, 2.0], [torch.nan] * 3])
    masked_squared_error(predicted, targets).backward()
    assert predicted.grad.tolist() == [[-1.0, 0.0, -2.0], [0.0, 0.0, 0.0]]


def test_half_precision_is_computed_in_float32():
    predicted, targets = torch.full((2, 3), 300.0, dtype=torch.float16), torch.zeros(2, 3)
    assert masked_squared_error(predicted, targets).item() == 90_000  # beyond float16


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_loss_of_a_batch_is_that_of_its_molecules(pooling):
    objective = DescriptorsObjective(CONFIG, pooling=pooling)
    torch.manual_seed(0)
    model = objective.model_class(objective.config).eval()
    targets = random_targets()
    batch = objective.collate(molecules(targets), np.random.default_rng(0))
    predicted = [model.head(model.exlm(row[row != 0][None]).pool(pooling))[0].tolist() for row in batch["input_ids"]]
    assert objective.losses(model, batch)["loss"].item() == pytest.approx(loop(predicted, targets), rel=1e-4)


def test_a_batch_holds_whole_molecules_and_their_targets():
    targets = random_targets()
    batch = DescriptorsObjective(CONFIG).collate(molecules(targets), np.random.default_rng(0))
    for ids, text in zip(batch["input_ids"], SMILES, strict=True):
        assert ids[ids != 0].tolist() == SmilesTokenizer()(text)["input_ids"]
    assert batch["targets"].dtype == torch.float32
    np.testing.assert_array_equal(batch["targets"].numpy(), targets.astype(np.float32))


def test_held_out_figures_equal_those_of_scikit_learn():
    objective = DescriptorsObjective(CONFIG)
    torch.manual_seed(0)
    model = objective.model_class(objective.config).eval()
    targets = random_targets(unknown=0.2)
    targets[:, 3] = 0.1  # the same for all: no figure of determination
    targets[1:, 4] = np.nan
    targets[:, 5] = np.nan
    halves = [molecules(targets)[:2], molecules(targets)[2:]]
    batches = [objective.collate(half, np.random.default_rng(0)) for half in halves]
    found = objective.evaluate(model, batches)
    predicted = torch.cat([model(batch["input_ids"]) for batch in batches]).detach().double().numpy()
    single = []
    for column, values in zip(targets.astype(np.float64).T, predicted.T, strict=True):
        known = ~np.isnan(column)
        if len(set(column[known])) > 1:
            single.append(r2_score(column[known], values[known]))
    assert len(single) == len(DESCRIPTOR_NAMES) - 3
    assert found["loss"] == pytest.approx(loop(predicted, targets), rel=1e-6)
    assert found["r2"] == pytest.approx(np.mean(single), rel=1e-6)


def test_perfect_predictions_have_no_loss_and_explain_all():
    objective = DescriptorsObjective(CONFIG)
    targets = torch.from_numpy(random_targets().astype(np.float32))
    batches = [{"input_ids": torch.zeros(3, 5), "targets": part} for part in targets.split(3)]
    answers = iter(targets.nan_to_num().split(3))
    assert objective.evaluate(lambda *_: next(answers), batches) == {"loss": 0.0, "r2": 1.0}


def test_targets_are_those_of_the_corpus(tmp_path):
    corpus = load_corpus(SMILES, cache_dir=tmp_path, progress=False)
    found = DescriptorsObjective(CONFIG).targets(corpus, progress=False)
    assert found.cache_files == load_descriptor_targets(corpus, progress=False).cache_files
    assert len(found) == len(SMILES)


@pytest.mark.parametrize(("num_states", "expected"), [(1, [3, 40]), (4, [9, 46])])
def test_only_the_ends_are_expanded(num_states, expected):
    config = ExLMConfig(**{**CONFIG.own_fields(), "num_states": num_states})
    objective = DescriptorsObjective(config)
    assert objective.encoded_lengths(np.array([3, 40])).tolist() == expected
    model = objective.model_class(objective.config)
    assert model.exlm(torch.tensor([[2, 20, 3]])).last_hidden_state.shape[1] == expected[0]


def test_a_pooling_that_is_none():
    with pytest.raises(SmilexError, match="pooling is mean or cls, not 'max'"):
        DescriptorsObjective(CONFIG, pooling="max")
