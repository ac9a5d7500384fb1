"""Every step of ExLM against reference values that were checked by enumeration of all paths."""

import numpy as np
import pytest
import torch
from torch import nn

from smilex.modeling.dag import best_path, log_likelihood, log_transitions, posterior
from smilex.modeling.rope import apply_rope_2d
from smilex.modeling.states import compact, expand_states

PRECISIONS = [(torch.float64, 1e-9), (torch.float32, 1e-4)]


@pytest.fixture(scope="module", params=["a", "b"])
def golden(request, shared_dir):
    return dict(np.load(shared_dir / "golden" / f"exlm_core_{request.param}.npz"))


def expand(golden):
    cls_id, pad_id, sep_id, mask_id = golden["special"]
    ids = torch.from_numpy(golden["input_ids"])
    marked = torch.isin(ids, torch.tensor([cls_id, sep_id, mask_id]))
    return expand_states(ids, marked, int(golden["num_states"]), int(pad_id))


def load(golden, name, dtype):
    return torch.from_numpy(golden[name]).to(dtype)


def linear(golden, name, dtype):
    weight, bias = load(golden, f"{name}_weight", dtype), load(golden, f"{name}_bias", dtype)
    layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=dtype)
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer


def states_of(golden):
    """Expanded positions of the states, padded, and their number."""
    return compact(expand(golden).state_index > 0)


def scatter(values, positions, count, size):
    """Write values at compact states back to expanded positions, 0 elsewhere; the last axes are the states."""
    full = torch.zeros(*values.shape[: values.ndim - 1], size, dtype=values.dtype)
    full[..., positions[:count]] = values[..., :count]
    return full


def core_inputs(golden, dtype):
    """Log-transitions and log-emissions of the compact states."""
    positions, num_states = states_of(golden)
    batch = torch.arange(len(positions))[:, None]
    features = load(golden, "features", dtype)
    link = load(golden, "link_position_table", dtype)[positions]
    graph = torch.cat([features[batch, positions], link], dim=-1)
    layers = [linear(golden, name, dtype) for name in ("query", "key", "gate")]
    transition = log_transitions(graph, *layers, num_states)
    log_probs = load(golden, "logits", dtype).log_softmax(-1)[batch, positions]
    targets = torch.from_numpy(golden["targets"])
    emission = log_probs[batch[..., None], torch.arange(positions.shape[1]), targets[..., None]]
    return emission, transition, torch.from_numpy(golden["target_lengths"]), num_states


def test_expansion(golden):
    expanded = expand(golden)
    for name, found in (
        ("expanded_ids", expanded.input_ids),
        ("token_position", expanded.token_position),
        ("state_index", expanded.state_index),
        ("valid", expanded.attention_mask),
        ("is_state", expanded.state_index > 0),
        ("expanded_lengths", expanded.attention_mask.sum(1)),
    ):
        np.testing.assert_array_equal(found.numpy(), golden[name], err_msg=name)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("name", ["rope_q", "rope_k"])
def test_rope(golden, name, dtype, tolerance):
    positions = (torch.from_numpy(golden["token_position"]), torch.from_numpy(golden["state_index"]))
    turned = apply_rope_2d(load(golden, name, dtype), *positions)
    np.testing.assert_allclose(turned.numpy(), golden[f"{name}_out"], rtol=0, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_transitions(golden, dtype, tolerance):
    positions, num_states = states_of(golden)
    _, transition, _, _ = core_inputs(golden, dtype)
    for b, count in enumerate(num_states):
        where = positions[b, :count].numpy()
        expected = golden["log_transitions"][b][np.ix_(where, where)]
        np.testing.assert_allclose(transition[b, :count, :count].detach().numpy(), expected, rtol=0, atol=tolerance)
        assert np.isneginf(transition[b, count:].detach().numpy()).all()


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_likelihood_loss_and_gradients(golden, dtype, tolerance):
    positions, num_states = states_of(golden)
    size = golden["expanded_ids"].shape[1]
    emission, transition, num_targets, _ = core_inputs(golden, dtype)
    emission, transition = emission.detach().requires_grad_(), transition.detach().requires_grad_()
    total = log_likelihood(emission, transition, num_targets, num_states)
    np.testing.assert_allclose(total.detach().numpy(), golden["log_likelihood"], rtol=0, atol=tolerance)
    assert (-(total / num_targets)).mean().item() == pytest.approx(float(golden["loss"]), abs=tolerance)
    total.sum().backward()
    for b, count in enumerate(num_states):
        by_emission = scatter(emission.grad[b], positions[b], count, size)
        np.testing.assert_allclose(by_emission.numpy(), golden["grad_emission"][b], rtol=0, atol=tolerance)
        columns = scatter(transition.grad[b], positions[b], count, size)
        by_link = scatter(columns.T.contiguous(), positions[b], count, size).T
        np.testing.assert_allclose(by_link.numpy(), golden["grad_log_transitions"][b], rtol=0, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_posterior_and_best_path(golden, dtype, tolerance):
    positions, num_states = states_of(golden)
    size = golden["expanded_ids"].shape[1]
    arguments = core_inputs(golden, dtype)
    emitted = posterior(*arguments)
    paths = best_path(*arguments)
    for b, count in enumerate(num_states):
        full = scatter(emitted[b], positions[b], count, size)
        np.testing.assert_allclose(full.numpy(), golden["grad_emission"][b], rtol=0, atol=tolerance)
        target_at = np.full(size, -1)
        for target, state in enumerate(paths[b].tolist()):
            if state >= 0:
                target_at[positions[b, state]] = target
        np.testing.assert_array_equal(target_at, golden["best_path"][b])
