"""Alignment: forward and backward of the dynamic programme, beside a plain loop over molecules and a training step."""

from collections.abc import Callable
from pathlib import Path

import torch
from throughput_corpus import Mixture
from throughput_measure import Figures, Size, rate, take_turns
from throughput_training import training_data
from torch import Tensor

from smilex.modeling import ExLMForMaskedLM
from smilex.modeling.dag import log_likelihood
from smilex.objectives.base import Batch
from smilex.pretraining import PretrainingData

IMPOSSIBLE = -1e30
"""In place of −∞, whose gradient would not be a number."""


def one_by_one(log_emission: Tensor, log_transition: Tensor, num_targets: Tensor, num_states: Tensor) -> Tensor:
    """Likelihoods as `smilex.modeling.dag.log_likelihood` defines them, each molecule by itself, without padding."""
    found = []
    for emission, transition, targets, states in zip(
        log_emission, log_transition, num_targets.tolist(), num_states.tolist(), strict=True
    ):
        link = transition[:states, :states].clamp_min(IMPOSSIBLE)
        forward = torch.full_like(emission[0, :states], IMPOSSIBLE)
        forward = torch.cat([emission[0, :1], forward[1:]])
        for target in range(1, targets):
            forward = torch.logsumexp(forward.unsqueeze(-1) + link, dim=0) + emission[target, :states]
        found.append(forward[-1])
    return torch.stack(found)


def middle_batch(data: PretrainingData) -> Batch:
    """Return the batch whose molecules are of middle length."""
    batches = [data[index] for index in range(data.batches.per_epoch)]
    batches.sort(key=lambda batch: batch["input_ids"].shape[1])
    return batches[len(batches) // 2]


def alignment_inputs(network: ExLMForMaskedLM, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what the alignment takes, from a forward pass: emissions, transitions, and the numbers of both."""
    config = network.config
    ids, labels = batch["input_ids"], batch["labels"]
    with torch.no_grad():
        output = network(input_ids=ids)
    hidden = labels != -100
    visited = hidden | (ids == config.cls_token_id) | (ids == config.sep_token_id)
    num_targets = visited.sum(1)
    targets = torch.zeros(len(ids), int(num_targets.max()), dtype=torch.int64)
    targets[torch.arange(targets.shape[1]) < num_targets[:, None]] = torch.where(hidden, labels, ids)[visited]
    log_probs = output.logits.log_softmax(-1)  # (B, S, V)
    wanted = targets[:, None].expand(-1, log_probs.shape[1], -1)  # (B, S, T)
    log_emission = log_probs.gather(2, wanted).transpose(1, 2).contiguous()  # (B, T, S)
    return log_emission, output.log_transitions, num_targets, output.num_states


def measure(mixture: Mixture, size: Size, folder: Path) -> Figures:
    """Measure molecules a second, and the share of the alignment in the time of a training step."""
    data = training_data(mixture, size, "exlm", folder)
    torch.manual_seed(0)
    network = ExLMForMaskedLM(data.objective.config)
    optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    batch = middle_batch(data)
    emission, transition, *numbers = alignment_inputs(network, batch)

    def both_ways(likelihood: Callable[..., Tensor]) -> Tensor:
        inputs = [emission.clone().requires_grad_(), transition.clone().requires_grad_()]
        total = likelihood(*inputs, *numbers)
        total.sum().backward()
        return total

    def step() -> None:
        optimizer.zero_grad()
        network(**batch).loss.backward()
        optimizer.step()

    torch.testing.assert_close(both_ways(one_by_one), both_ways(log_likelihood), rtol=1e-4, atol=1e-4)
    molecules = len(emission)
    rows = take_turns(
        {
            "dynamic programme, a batch": rate(lambda: both_ways(log_likelihood), molecules),
            "dynamic programme, one by one": rate(lambda: both_ways(one_by_one), molecules),
            "whole training step": rate(step, molecules),
        },
        size.rounds,
    )
    whole = rows["whole training step"]["median"]
    for row in rows.values():
        row["step_share"] = whole / row["median"]
    shape = {"molecules": molecules, "targets": emission.shape[1], "states": emission.shape[2]}
    return {"unit": "molecules/s", "rows": rows, "batch": shape}
