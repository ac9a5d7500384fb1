"""Transitions between states and the alignment of states with targets (ExLM, arXiv 2501.13397).

The S states of a molecule, in order, are the vertices of a directed acyclic graph: each one links to all later ones.
A path visits one state per target, from the first state to the last one. The likelihood of the targets sums over all
paths, in log space:

    f_1[first] = log P[first, y_1]
    f_i[u]     = logsumexp_{v<u}( f_{i-1}[v] + log E[v, u] ) + log P[u, y_i]
    log p      = f_T[last]

Shapes: B molecules, T targets (padded), S states (padded), d hidden size, H link heads.
"""

import math

import torch
from torch import Tensor, nn

# Stands for −∞ inside the recursions: the gradient of a logsumexp over nothing but −∞ is NaN, over this it is 0.
# Sums of a thousand of them stay finite in float32, and no real log-probability comes near it.
_IMPOSSIBLE = -1e30


def _as_float(x: Tensor) -> Tensor:
    """At least float32: half precision loses the small probabilities."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def log_transitions(features: Tensor, query: nn.Linear, key: nn.Linear, gate: nn.Linear, num_states: Tensor) -> Tensor:
    """Log-probability of going from each state to each later one, a gated mixture of link heads.

    With q = g W_q, k = g W_k of H heads of width c and gate = log_softmax_h(g W_g):
    A_h[u, v] = q_uh · k_vh / √c for v > u, −∞ otherwise, and
    log E[u, v] = logsumexp_h(log_softmax_v(A_h)[u, v] + gate[u, h]).

    Parameters
    ----------
    features : Tensor, shape (B, S, 2d)
        g, the final hidden vector of each state beside the embedding of its index in the expanded sequence.
    query, key : nn.Linear
        2d → H · c.
    gate : nn.Linear
        2d → H; its width says how many link heads there are.
    num_states : Tensor, int64, shape (B,)
        States of each molecule; later ones are padding.

    Returns
    -------
    Tensor, float32 or float64, shape (B, S, S)
        −∞ where v ≤ u, at padding, and in the whole row of the last state, which has no successors.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> query, key, gate = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(6, 2)
    >>> log_e = log_transitions(torch.randn(1, 3, 6), query, key, gate, torch.tensor([3]))
    >>> [round(row, 4) for row in log_e.exp().sum(-1)[0].tolist()]
    [1.0, 1.0, 0.0]
    """
    batch, size, _ = features.shape
    heads = gate.out_features
    with torch.autocast(features.device.type, enabled=False):
        features = _as_float(features)
        q = query(features).view(batch, size, heads, -1).transpose(1, 2)  # (B, H, S, c)
        k = key(features).view(batch, size, heads, -1).transpose(1, 2)
        log_gate = gate(features).log_softmax(-1).transpose(1, 2).unsqueeze(-1)  # (B, H, S, 1)
        score = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])  # (B, H, S, S)
        state = torch.arange(size, device=features.device)
        successor = (state > state[:, None]) & (state < num_states[:, None, None])  # (B, S, S)
        # Masked with a finite number first: rows without successors would give NaN in the softmax and its gradient.
        score = score.masked_fill(~successor.unsqueeze(1), _IMPOSSIBLE)
        log_e = torch.logsumexp(score.log_softmax(-1) + log_gate, dim=1)
        return log_e.masked_fill(~successor, -math.inf)


def log_likelihood(log_emission: Tensor, log_transition: Tensor, num_targets: Tensor, num_states: Tensor) -> Tensor:
    """Log-probability of the targets, summed over all paths.

    Parameters
    ----------
    log_emission : Tensor, shape (B, T, S)
        log P[u, y_i], state u emitting target i.
    log_transition : Tensor, shape (B, S, S)
        log E[u, v]; −∞ where there is no link.
    num_targets, num_states : Tensor, int64, shape (B,)
        Targets and states of each molecule; later ones are padding.

    Returns
    -------
    Tensor, float32 or float64, shape (B,)
        −∞ where no path exists. Differentiable, with finite gradients in every case.

    Examples
    --------
    Two targets, three states: the only path goes from the first state to the last one.

    >>> emission = torch.tensor([[[0.5, 0.1, 0.1], [0.1, 0.1, 0.25]]]).log()
    >>> transition = torch.tensor([[[0.0, 0.8, 0.2], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]]).log()
    >>> round(log_likelihood(emission, transition, torch.tensor([2]), torch.tensor([3])).exp().item(), 6)
    0.025
    """
    log_emission = _as_float(log_emission).clamp_min(_IMPOSSIBLE)
    log_transition = _as_float(log_transition).clamp_min(_IMPOSSIBLE)
    forward = torch.full_like(log_emission[:, 0], _IMPOSSIBLE)
    forward = torch.cat([log_emission[:, 0, :1], forward[:, 1:]], dim=1)  # (B, S)
    for target in range(1, log_emission.shape[1]):
        step = torch.logsumexp(forward.unsqueeze(-1) + log_transition, dim=1) + log_emission[:, target]
        forward = torch.where((target < num_targets).unsqueeze(-1), step, forward)
    result = forward.gather(1, (num_states - 1).unsqueeze(-1)).squeeze(-1)
    return result.masked_fill(result < _IMPOSSIBLE / 2, -math.inf)


def posterior(log_emission: Tensor, log_transition: Tensor, num_targets: Tensor, num_states: Tensor) -> Tensor:
    """Probability that target i is emitted at state u, given all targets.

    It is the gradient of the log-likelihood with respect to the log-emissions; with emissions of 1 (zeros here) it is
    γ_i[u], the probability that a path of T states from first to last is at u on step i.

    Parameters
    ----------
    log_emission, log_transition, num_targets, num_states
        As in `log_likelihood`.

    Returns
    -------
    Tensor, float32 or float64, shape (B, T, S)
        Rows of real targets sum to 1 where a path exists; rows of padding are 0. Detached from the graph.

    Examples
    --------
    >>> transition = torch.tensor([[[0.0, 0.8, 0.2], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]]).log()
    >>> posterior(torch.zeros(1, 3, 3), transition, torch.tensor([3]), torch.tensor([3]))[0].tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    with torch.inference_mode(mode=False), torch.enable_grad():  # callers may have turned gradients off in either way
        emission = _as_float(log_emission.detach().clone()).requires_grad_()
        total = log_likelihood(emission, log_transition.detach(), num_targets, num_states)
        (gradient,) = torch.autograd.grad(total.sum(), emission)
    return gradient


def best_path(log_emission: Tensor, log_transition: Tensor, num_targets: Tensor, num_states: Tensor) -> Tensor:
    """Most probable path (Viterbi).

    Parameters
    ----------
    log_emission, log_transition, num_targets, num_states
        As in `log_likelihood`.

    Returns
    -------
    Tensor, int64, shape (B, T)
        State that emits each target; −1 at padding, and in the whole row where no path exists.

    Examples
    --------
    >>> transition = torch.tensor([[[0.0, 0.8, 0.2], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]]).log()
    >>> best_path(torch.zeros(1, 3, 3), transition, torch.tensor([2]), torch.tensor([3])).tolist()
    [[0, 2, -1]]
    """
    log_emission = _as_float(log_emission).clamp_min(_IMPOSSIBLE)
    log_transition = _as_float(log_transition).clamp_min(_IMPOSSIBLE)
    batch, length, _ = log_emission.shape
    score = torch.full_like(log_emission[:, 0], _IMPOSSIBLE)
    score[:, 0] = log_emission[:, 0, 0]
    predecessors = []
    for target in range(1, length):
        best, predecessor = (score.unsqueeze(-1) + log_transition).max(dim=1)
        predecessors.append(predecessor)
        score = torch.where((target < num_targets).unsqueeze(-1), best + log_emission[:, target], score)
    state = num_states - 1
    possible = score.gather(1, state.unsqueeze(-1)).squeeze(-1) > _IMPOSSIBLE / 2
    path = torch.full((batch, length), -1, device=score.device)
    for target in reversed(range(length)):
        inside = (target < num_targets) & possible
        path[:, target] = torch.where(inside, state, -1)
        if target:
            back = predecessors[target - 1].gather(1, state.unsqueeze(-1)).squeeze(-1)
            state = torch.where(inside, back, state)
    return path
