from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from smilex.modeling.dag import best_path, log_likelihood, log_transitions, posterior


def random_graph(seed, batch=1, targets=4, states=6, *, sparse=False, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    log_emission = torch.randn(batch, targets, states, generator=generator, dtype=dtype).log_softmax(-1)
    score = torch.randn(batch, states, states, generator=generator, dtype=dtype)
    allowed = torch.ones(states, states).triu(1).bool()
    if sparse:
        allowed = allowed & (torch.rand(batch, states, states, generator=generator) < 0.5)
    log_transition = score.masked_fill(~allowed, -1e9).log_softmax(-1).masked_fill(~allowed, -torch.inf)
    return log_emission, log_transition


def all_paths(num_targets, num_states):
    """Every increasing sequence of states from the first to the last one."""
    if num_targets == 1:
        return [(0,)] if num_states == 1 else []
    return [(0, *middle, num_states - 1) for middle in combinations(range(1, num_states - 1), num_targets - 2)]


def path_log_prob(path, log_emission, log_transition):
    total = sum(log_emission[i, u].item() for i, u in enumerate(path))
    return total + sum(log_transition[u, v].item() for u, v in pairwise(path))


def enumerate_paths(log_emission, log_transition, num_targets, num_states):
    paths = all_paths(num_targets, num_states)
    scores = [path_log_prob(path, log_emission, log_transition) for path in paths]
    return paths, np.array(scores)


sizes = st.integers(2, 7).flatmap(lambda states: st.tuples(st.integers(2, states), st.just(states)))


@given(st.integers(0, 2**31), sizes, st.booleans())
def test_likelihood_posterior_and_best_path_equal_enumeration(seed, size, sparse):
    targets, states = size
    log_emission, log_transition = random_graph(seed, 1, targets, states, sparse=sparse)
    arguments = (log_emission, log_transition, torch.tensor([targets]), torch.tensor([states]))
    paths, scores = enumerate_paths(log_emission[0], log_transition[0], targets, states)
    total = np.logaddexp.reduce(scores)
    assert log_likelihood(*arguments).item() == pytest.approx(total, abs=1e-9)
    found = best_path(*arguments)[0].tolist()
    if np.isneginf(total):
        assert found == [-1] * targets
        assert (posterior(*arguments) == 0).all()
        return
    assert path_log_prob(found, log_emission[0], log_transition[0]) == pytest.approx(scores.max(), abs=1e-9)
    expected = torch.zeros(targets, states, dtype=torch.float64)
    for path, score in zip(paths, scores, strict=True):
        for i, u in enumerate(path):
            expected[i, u] += np.exp(score - total)
    torch.testing.assert_close(posterior(*arguments)[0], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_posterior_needs_no_gradients_of_its_caller(mode, dtype):
    def sizes():
        return torch.tensor([3, 4]), torch.tensor([5, 6])

    expected = posterior(*random_graph(0, batch=2, dtype=dtype), *sizes())
    with mode():
        torch.testing.assert_close(
            posterior(*random_graph(0, batch=2, dtype=dtype), *sizes()), expected, rtol=0, atol=0
        )


@given(st.integers(0, 2**31), st.lists(sizes, min_size=2, max_size=4))
def test_batch_mates_do_not_matter(seed, molecule_sizes):
    width_t, width_s = max(t for t, _ in molecule_sizes) + 1, max(s for _, s in molecule_sizes) + 2
    log_emission, log_transition = random_graph(seed, len(molecule_sizes), width_t, width_s)
    targets, states = (torch.tensor(column) for column in zip(*molecule_sizes, strict=True))
    together = log_likelihood(log_emission, log_transition, targets, states)
    paths = best_path(log_emission, log_transition, targets, states)
    for b, (t, s) in enumerate(molecule_sizes):
        alone = (
            log_emission[b : b + 1, :t, :s],
            log_transition[b : b + 1, :s, :s],
            targets[b : b + 1],
            states[b : b + 1],
        )
        torch.testing.assert_close(together[b], log_likelihood(*alone)[0])
        assert paths[b].tolist() == best_path(*alone)[0].tolist() + [-1] * (width_t - t)


def test_gradients_by_finite_differences():
    log_emission, log_transition = random_graph(3, 2, 3, 5)
    links = log_transition.isfinite()
    values = log_transition[links].requires_grad_()

    def likelihood(emission, link_values):
        transition = torch.full_like(log_transition, -torch.inf).masked_scatter(links, link_values)
        return log_likelihood(emission, transition, torch.tensor([3, 2]), torch.tensor([5, 4]))

    assert torch.autograd.gradcheck(likelihood, (log_emission.requires_grad_(), values))


@given(st.integers(0, 2**31), sizes, st.booleans())
def test_gradients_are_never_nan(seed, size, sparse):
    log_emission, log_transition = random_graph(seed, 1, *size, sparse=sparse, dtype=torch.float32)
    log_emission.requires_grad_()
    log_transition.requires_grad_()
    log_likelihood(log_emission, log_transition, torch.tensor([size[0]]), torch.tensor([size[1]])).sum().backward()
    assert log_emission.grad.isfinite().all()
    assert log_transition.grad.isfinite().all()


def test_no_path_has_likelihood_zero():
    log_emission, log_transition = random_graph(0, 1, 4, 3)  # more targets than states
    arguments = (log_emission, log_transition, torch.tensor([4]), torch.tensor([3]))
    assert log_likelihood(*arguments).item() == -torch.inf
    assert best_path(*arguments).tolist() == [[-1, -1, -1, -1]]


@settings(deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 6), min_size=1, max_size=4), st.sampled_from([1, 2, 4]))
def test_transitions_are_distributions_over_later_states(seed, num_states, heads):
    torch.manual_seed(seed)
    query, key, gate = nn.Linear(10, 8), nn.Linear(10, 8), nn.Linear(10, heads)
    features = torch.randn(len(num_states), max(num_states), 10, requires_grad=True)
    log_e = log_transitions(features, query, key, gate, torch.tensor(num_states))
    assert not log_e.isnan().any()
    later = torch.ones_like(log_e, dtype=torch.bool).triu(1)
    for b, count in enumerate(num_states):
        expected = later[b].clone()
        expected[:, count:] = False
        assert (log_e[b].isfinite() == expected).all()
        torch.testing.assert_close(log_e[b, : count - 1].exp().sum(-1), torch.ones(count - 1))
    log_e[log_e.isfinite()].sum().backward()
    assert features.grad.isfinite().all()


def test_transitions_equal_the_formula():
    torch.manual_seed(0)
    heads, width, size = 2, 3, 4
    query, key, gate = (nn.Linear(6, n).double() for n in (heads * width, heads * width, heads))
    features = torch.randn(1, size, 6, dtype=torch.float64)
    log_e = log_transitions(features, query, key, gate, torch.tensor([size]))[0]
    q, k, log_gate = query(features[0]), key(features[0]), gate(features[0]).log_softmax(-1)
    for u in range(size - 1):
        mixture = torch.zeros(size, dtype=torch.float64)
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            weights = torch.stack([(q[u, part] * k[v, part]).sum() / width**0.5 for v in range(u + 1, size)]).softmax(0)
            mixture[u + 1 :] += log_gate[u, h].exp() * weights
        torch.testing.assert_close(log_e[u].exp(), mixture)


def test_half_precision_is_computed_in_float32():
    log_emission, log_transition = random_graph(1, 1, 4, 6, dtype=torch.float32)
    arguments = (log_transition, torch.tensor([4]), torch.tensor([6]))
    result = log_likelihood(log_emission.bfloat16(), *arguments)
    assert result.dtype == torch.float32
    assert result.item() == pytest.approx(log_likelihood(log_emission, *arguments).item(), rel=1e-2)
