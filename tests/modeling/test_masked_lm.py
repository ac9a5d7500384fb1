from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smilex.modeling import ExLMConfig, ExLMForMaskedLM
from smilex.modeling.loading import load_model
from smilex.modeling.masked_lm import StateTransitions

CLS, SEP, MASK, PAD = 2, 3, 4, 0
VOCAB = 30


def build(num_states, **overrides):
    torch.manual_seed(0)
    config = ExLMConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        num_states=num_states,
        initializer_range=0.3,
        **overrides,
    )
    return ExLMForMaskedLM(config)


@st.composite
def masked_molecules(draw):
    """Token ids and labels of molecules with no, some or all tokens masked."""
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        ids = draw(st.lists(st.integers(5, VOCAB - 1), min_size=1, max_size=8))
        masked = draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
        rows.append((ids, draw(st.sampled_from([masked, [True] * len(ids), [False] * len(ids)]))))
    return rows


def tensors(rows):
    width = max(len(ids) for ids, _ in rows) + 2
    input_ids = torch.full((len(rows), width), PAD)
    labels = torch.full((len(rows), width), -100)
    for b, (ids, masked) in enumerate(rows):
        input_ids[b, 0], input_ids[b, len(ids) + 1] = CLS, SEP
        for place, (token, hidden) in enumerate(zip(ids, masked, strict=True), start=1):
            input_ids[b, place] = MASK if hidden else token
            labels[b, place] = token if hidden else -100
    return input_ids, labels


@settings(deadline=None, max_examples=40)
@given(masked_molecules(), st.sampled_from([1, 2, 4]))
def test_a_molecules_likelihood_does_not_depend_on_its_batch_mates(rows, num_states):
    model = build(num_states).eval()
    alone = [model(input_ids=ids, labels=labels).loss.item() for ids, labels in (tensors([row]) for row in rows)]
    together = model(*tensors(rows)[:1], labels=tensors(rows)[1]).loss.item()
    if num_states == 1:  # averaged over masks, not over molecules
        masks = [sum(masked) for _, masked in rows]
        expected = np.dot(alone, masks) / max(sum(masks), 1)
    else:
        expected = np.mean(alone)
    assert together == pytest.approx(expected, abs=1e-5)


@settings(deadline=None, max_examples=40)
@given(masked_molecules(), st.sampled_from([1, 2, 4]))
def test_no_nan_in_forward_and_backward(rows, num_states):
    model = build(num_states).train()
    input_ids, labels = tensors(rows)
    output = model(input_ids, labels=labels)
    output.loss.backward()
    assert output.loss.isfinite()
    assert output.logits.isfinite().all()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


def test_head_and_transitions_see_the_states_only():
    model = build(4).eval()
    output = model(torch.tensor([[CLS, 10, 11, MASK, 12, SEP]]))
    assert output.logits.shape == (1, 12, VOCAB)
    assert output.log_transitions.shape == (1, 12, 12)


def test_one_state_is_a_plain_masked_language_model():
    model = build(1).eval()
    input_ids, labels = tensors([([10, 11, 12, 13], [False, True, True, False]), ([10, 11], [True, False])])
    output = model(input_ids, labels=labels)
    hidden = model.exlm(input_ids).last_hidden_state
    scores = model.lm_head(hidden, model.exlm.word_embeddings.weight)
    torch.testing.assert_close(
        output.loss, torch.nn.functional.cross_entropy(scores[labels != -100], labels[labels != -100])
    )
    assert output.log_transitions is None
    assert not any("transitions" in name for name, _ in model.named_parameters())
    log_probs = model.mask_log_probs(output, (labels != -100).sum(1))
    torch.testing.assert_close(log_probs[0], scores[0, 2:4].log_softmax(-1))


@pytest.mark.parametrize("num_masks", [1, 2, 3])
def test_marginals_at_masks_equal_enumeration_of_all_paths(num_masks):
    model = build(2).eval().double()
    ids = torch.tensor([[CLS, *([MASK, 10] * num_masks), SEP]])
    output = model(ids)
    log_e, probs = output.log_transitions[0], output.logits[0].softmax(-1)
    states = probs.shape[0]
    at_state = torch.zeros(num_masks + 2, states, dtype=torch.float64)
    for middle in combinations(range(1, states - 1), num_masks):
        path = (0, *middle, states - 1)
        weight = sum(log_e[u, v] for u, v in pairwise(path)).exp()
        for target, state in enumerate(path):
            at_state[target, state] += weight
    at_state /= at_state.sum(-1, keepdim=True)
    found = model.mask_log_probs(output, torch.tensor([num_masks]))[0]
    torch.testing.assert_close(found.exp(), at_state[1:-1] @ probs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_marginals_are_the_same_where_gradients_are_off(mode):
    model = build(2).eval()
    rows = [([10, 11, 12], [True, False, True]), ([10], [True])]
    expected = model.mask_log_probs(model(tensors(rows)[0]), torch.tensor([2, 1]))
    with mode():
        found = model.mask_log_probs(model(tensors(rows)[0]), torch.tensor([2, 1]))
    torch.testing.assert_close(found, expected)


def test_loss_is_the_mean_of_log_likelihoods_over_targets():
    from smilex.modeling.dag import log_likelihood

    model = build(3).eval()
    input_ids, labels = tensors([([10, 11, 12], [True, False, True]), ([10], [True])])
    output = model(input_ids, labels=labels)
    losses = []
    for b, targets in enumerate(([CLS, 10, 12, SEP], [CLS, 10, SEP])):
        states = 3 * len(targets)
        emission = output.logits[b, :states].log_softmax(-1)[:, targets].T[None]
        total = log_likelihood(
            emission,
            output.log_transitions[b : b + 1, :states, :states],
            torch.tensor([len(targets)]),
            torch.tensor([states]),
        )
        losses.append(-total / len(targets))
    torch.testing.assert_close(output.loss, torch.cat(losses).mean())


def test_lm_head_is_tied_to_the_token_embedding():
    model = build(2)
    shapes = [tuple(parameter.shape) for parameter in model.parameters()]
    assert shapes.count((VOCAB, 32)) == 1


@pytest.mark.parametrize(("num_masks", "num_states"), [(0, 4), (1, 2), (3, 2), (2, 3)])
def test_without_transitions_all_paths_are_equally_likely(num_masks, num_states):
    model = build(num_states, transitions=False).eval().double()
    # A longer molecule beside it, so that there is padding.
    ids = [MASK, 10] * num_masks or [10]
    input_ids, _ = tensors([(ids, [False] * len(ids)), ([MASK] * 8, [True] * 8)])
    output = model(input_ids)
    log_e, states = output.log_transitions[0], num_states * (num_masks + 2)
    paths = [(0, *middle, states - 1) for middle in combinations(range(1, states - 1), num_masks)]
    for path in paths:
        assert sum(log_e[u, v] for u, v in pairwise(path)).exp().item() == pytest.approx(1 / len(paths))
    assert log_e[states - 1].isinf().all()
    assert log_e[:, states:].isinf().all()
    assert log_e.tril().isinf().logical_or(log_e.tril() == 0).all()
    assert not any("transitions" in name for name, _ in model.named_parameters())


def test_without_transitions_the_loss_still_has_finite_gradients():
    model = build(4, transitions=False).train()
    input_ids, labels = tensors([([10, 11, 12], [True, False, True]), ([10], [False])])
    output = model(input_ids, labels=labels)
    output.loss.backward()
    assert output.loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.exlm.parameters())


def transitions_fall(model):
    """How much log E[u, v] falls from one v to the next, for each expanded position between the two; the mean."""
    ids = torch.tensor([[CLS, MASK, 10, 11, 12, MASK, MASK, 13, SEP]])
    places = model.eval().exlm(ids).state_index[0].nonzero().flatten()
    log_e = model(ids).log_transitions[0]
    falls = [-log_e[u, u + 1 :].diff() / places[u + 1 :].diff() for u in range(len(places) - 2)]
    return torch.cat(falls).mean().item()


@pytest.mark.parametrize("size", ["tiny", "small"])
@pytest.mark.parametrize("num_states", [2, 4])
def test_transitions_start_by_falling_with_every_position_between(size, num_states):
    torch.manual_seed(0)
    model = ExLMForMaskedLM(ExLMConfig.from_preset(size, num_states=num_states))
    assert transitions_fall(model) == pytest.approx(StateTransitions.DECAY, rel=0.1)


def test_new_transitions_of_a_saved_encoder_start_so_too_and_saved_ones_stay(tmp_path):
    model = ExLMForMaskedLM(ExLMConfig.from_preset("tiny"))
    model.exlm.save_pretrained(tmp_path / "encoder")
    begun = load_model(ExLMForMaskedLM, tmp_path / "encoder", new_heads=True)
    assert transitions_fall(begun) == pytest.approx(StateTransitions.DECAY, rel=0.1)
    for weight in model.transitions.parameters():
        torch.nn.init.normal_(weight)
    model.save_pretrained(tmp_path / "trained")
    loaded = load_model(ExLMForMaskedLM, tmp_path / "trained")
    for name, weight in model.transitions.named_parameters():
        assert torch.equal(loaded.transitions.get_parameter(name), weight), name
