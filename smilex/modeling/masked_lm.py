"""ExLM for masked language modelling: emissions, transitions and the state alignment loss (arXiv 2501.13397).

Shapes: B molecules, L tokens, T targets ([CLS], the masked tokens, [SEP]), S states, V vocabulary, d hidden size.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.utils import ModelOutput

from smilex.modeling.config import ExLMConfig
from smilex.modeling.dag import log_likelihood, log_transitions, posterior
from smilex.modeling.encoder import _UNSET, ExLMModel, ExLMPreTrainedModel
from smilex.modeling.language_model_head import LanguageModelHead
from smilex.modeling.states import compact


@dataclass
class ExLMMaskedLMOutput(ModelOutput):
    """Emissions and transitions of the states.

    Parameters
    ----------
    loss : Tensor, shape ()
        Mean over molecules of −log-likelihood / T; for k = 1 the mean cross-entropy at the masks. Only with labels.
    logits : Tensor, shape (B, S, V)
        Scores of the vocabulary at each state, in order; with k = 1, [CLS], each mask, [SEP].
    log_transitions : Tensor, float32 or float64, shape (B, S, S)
        log E; None for k = 1.
    num_states : Tensor, int64, shape (B,)
        States of each molecule; later ones are padding.
    """

    loss: Tensor | None = None
    logits: Tensor = _UNSET
    log_transitions: Tensor | None = None
    num_states: Tensor = _UNSET


class StateTransitions(nn.Module):
    """Link heads over the states, each a pair of final vector and embedding of its expanded position.

    Notes
    -----
    The paper does not say how they start. Small random weights make log E[u, v] nearly uniform over the v > u, and the
    path through the states then prefers to leap to the end, where few successors are left; the last states, those of
    [SEP], learn to emit the masked tokens, and what the states of a mask learn is lost. Here log E starts by falling
    by `DECAY` with every expanded position between u and v. Along a path these falls add up to a constant, so that no
    path is preferred for its length of stride.
    """

    DECAY = 0.2
    """How much log E falls at the start for each expanded position between two states."""
    STRIDE = 0.05
    """What one expanded position adds to the first coordinate of its embedding at the start."""

    def __init__(self, config: ExLMConfig) -> None:
        super().__init__()
        self.position_embeddings = nn.Embedding(config.max_position_embeddings * config.num_states, config.hidden_size)
        self.query = nn.Linear(2 * config.hidden_size, config.hidden_size)
        self.key = nn.Linear(2 * config.hidden_size, config.hidden_size)
        self.gate = nn.Linear(2 * config.hidden_size, config.num_attention_heads)

    def forward(self, x: Tensor, positions: Tensor, num_states: Tensor) -> Tensor:
        """Return log E (B, S, S) of states with vectors x (B, S, d) at expanded positions (B, S)."""
        features = torch.cat([x, self.position_embeddings(positions)], dim=-1)
        return log_transitions(features, self.query, self.key, self.gate, num_states)

    def prefer_near_states(self) -> None:
        """Let log E start as `Notes` says, in the weights that have not been loaded.

        The first coordinate of e_u becomes `STRIDE` · u, and the first of the c coordinates of every link head reads
        it alone: q = w, key = −w · STRIDE · v, w² = DECAY / STRIDE · √c.
        """
        width, heads = self.position_embeddings.embedding_dim, self.gate.out_features
        c = width // heads
        w = math.sqrt(self.DECAY / self.STRIDE * math.sqrt(c))
        every, first_of_head = slice(None), slice(None, None, c)
        places = torch.arange(self.position_embeddings.num_embeddings)
        _start(self.position_embeddings.weight, (every, 0), self.STRIDE * places)
        for linear in (self.query, self.key, self.gate):
            _start(linear.weight, (every, width), 0.0)  # of [h_u ; e_u], the first coordinate of e_u
        _start(self.query.bias, first_of_head, w)
        _start(self.key.weight, (first_of_head, width), -w)


def _start(weight: Tensor, part: Any, value: Tensor | float) -> None:
    """Set part of a new weight; transformers marks loaded weights, not views of them, and leaves those alone."""
    whole = weight.clone()
    whole[part] = value
    init.copy_(weight, whole)


class EqualPaths(nn.Module):
    """Transitions that know nothing: of N paths through the states of a molecule, each has probability 1 / N.

    A path of T = S / k states has T − 1 links, and each link of all paths the same weight. Transitions that were
    uniform in the next state would instead prefer paths that leap to the end, where few successors are left.
    """

    def __init__(self, config: ExLMConfig) -> None:
        super().__init__()
        self.states_per_target = config.num_states

    def forward(self, x: Tensor, positions: Tensor, num_states: Tensor) -> Tensor:
        """Return log weights (B, S, S), those of a path summing to −log N; arguments as in `StateTransitions`."""
        total = num_states.to(torch.promote_types(x.dtype, torch.float32))
        links = total / self.states_per_target - 1
        # First and last state are fixed: N is the number of ways to choose T − 2 of the S − 2 states between.
        log_paths = (total - 1).lgamma() - links.lgamma() - (total - links).lgamma()
        state = torch.arange(x.shape[1], device=x.device)
        successor = (state > state[:, None]) & (state < num_states[:, None, None])
        return (-log_paths / links)[:, None, None].expand(successor.shape).masked_fill(~successor, -math.inf)


class ExLMForMaskedLM(ExLMPreTrainedModel):
    """Encoder, language-model head and transitions, trained to find the masked tokens.

    Parameters
    ----------
    config : ExLMConfig
        With ``num_states=1`` it is a plain masked language model: no transitions, cross-entropy at the masks.

    Examples
    --------
    >>> model = ExLMForMaskedLM(ExLMConfig.from_preset("tiny")).eval()
    >>> ids = torch.tensor([[2, 20, 4, 21, 3]])  # [CLS] token [MASK] token [SEP]
    >>> output = model(ids, labels=torch.tensor([[-100, -100, 22, -100, -100]]))
    >>> output.logits.shape  # 3 special tokens of 4 states each
    torch.Size([1, 12, 512])
    >>> model.mask_log_probs(output, num_masks=torch.tensor([1])).shape
    torch.Size([1, 1, 512])
    """

    def __init__(self, config: ExLMConfig) -> None:
        super().__init__(config)
        self.exlm = ExLMModel(config)
        self.lm_head = LanguageModelHead(config)
        transitions = StateTransitions if config.transitions else EqualPaths
        self.transitions = transitions(config) if config.num_states > 1 else None
        self.post_init()

    @torch.no_grad()
    def initialize_weights(self) -> None:
        """Set the weights that have not been loaded."""
        super().initialize_weights()
        if isinstance(self.transitions, StateTransitions):  # no parameters of its own: `_init_weights` never sees it
            self.transitions.prefer_near_states()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, **_: object
    ) -> ExLMMaskedLMOutput:
        """Score the states and, with labels, compute the loss.

        Parameters
        ----------
        input_ids : Tensor, int64, shape (B, L)
            Token ids with [MASK] at the hidden places.
        attention_mask : Tensor, shape (B, L), optional
            0 at padding.
        labels : Tensor, int64, shape (B, L), optional
            The hidden id at each mask, −100 elsewhere.

        Returns
        -------
        ExLMMaskedLMOutput
        """
        encoded = self.exlm(input_ids, attention_mask)
        positions, num_states = compact(encoded.state_index > 0)
        hidden = encoded.last_hidden_state.gather(
            1, positions.unsqueeze(-1).expand(-1, -1, encoded.last_hidden_state.shape[-1])
        )  # (B, S, d)
        output = ExLMMaskedLMOutput(
            logits=self.lm_head(hidden, self.exlm.word_embeddings.weight),
            log_transitions=self.transitions(hidden, positions, num_states) if self.transitions is not None else None,
            num_states=num_states,
        )
        if labels is not None:
            output.loss = self._loss(output, input_ids, labels)
        return output

    def _loss(self, output: ExLMMaskedLMOutput, input_ids: Tensor, labels: Tensor) -> Tensor:
        targets, num_targets = self._targets(input_ids, labels)
        if output.log_transitions is None:
            is_mask = (targets != self.config.cls_token_id) & (targets != self.config.sep_token_id)
            is_mask &= torch.arange(targets.shape[1], device=targets.device) < num_targets.unsqueeze(-1)
            total = F.cross_entropy(output.logits[is_mask].float(), targets[is_mask], reduction="sum")
            return total / is_mask.sum().clamp_min(1)
        log_probs = output.logits.log_softmax(-1, dtype=torch.promote_types(output.logits.dtype, torch.float32))
        batch = torch.arange(len(targets), device=targets.device)[:, None, None]
        state = torch.arange(log_probs.shape[1], device=targets.device)
        log_emission = log_probs[batch, state, targets.unsqueeze(-1)]  # (B, T, S)
        total = log_likelihood(log_emission, output.log_transitions, num_targets, output.num_states)
        return -(total / num_targets).mean()

    def _targets(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """[CLS], the masked tokens and [SEP] of each molecule, (B, T) padded, and their number, (B,)."""
        masked = labels != -100
        ends = (input_ids == self.config.cls_token_id) | (input_ids == self.config.sep_token_id)
        positions, num_targets = compact(masked | ends)
        return torch.where(masked, labels, input_ids).gather(1, positions), num_targets

    @torch.no_grad()
    def mask_log_probs(self, output: ExLMMaskedLMOutput, num_masks: Tensor) -> Tensor:
        """Log-probability of every token at each mask, whatever the other masks hold.

        P(target i = y) = Σ_u γ_i[u] P[u, y], with γ_i[u] the probability that a path is at state u on step i.

        Parameters
        ----------
        output : ExLMMaskedLMOutput
            What the model returned for the masked molecules.
        num_masks : Tensor, int64, shape (B,)
            Masks of each molecule, M; later ones are padding.

        Returns
        -------
        Tensor, float32 or float64, shape (B, M, V)
        """
        log_probs = output.logits.log_softmax(-1, dtype=torch.promote_types(output.logits.dtype, torch.float32))
        longest = int(num_masks.max())
        if output.log_transitions is None:
            return log_probs[:, 1 : longest + 1]
        free = log_probs.new_zeros(len(log_probs), longest + 2, log_probs.shape[1])  # (B, T, S): emissions of 1
        at_state = posterior(free, output.log_transitions, num_masks + 2, output.num_states)[:, 1:-1]  # (B, M, S)
        floor = math.log(torch.finfo(log_probs.dtype).tiny)
        return (at_state @ log_probs.exp()).log().clamp_min(floor)
