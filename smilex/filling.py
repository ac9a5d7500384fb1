"""Reading masks back: which tokens a pretrained model expects in the place of [MASK]."""

import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from smilex import DEFAULT_ENCODER
from smilex.checks import count
from smilex.chem import parse
from smilex.errors import InvalidSmilesError, SmilexError
from smilex.modeling import ExLMForMaskedLM
from smilex.modeling.loading import find_encoder, load_model
from smilex.tokenization import SmilesTokenizer

BEAM_WIDTH = 256
"""Partial fillings that the search keeps; with one mask, more than half of the vocabulary."""


class Filling(NamedTuple):
    """A completion: the SMILES, and the model's probability of its fillings among all fillings."""

    smiles: str
    probability: float


def fill_mask(smiles: str, encoder: str | Path = DEFAULT_ENCODER, top_k: int = 5) -> list[Filling]:
    """Complete a SMILES with masks.

    All masks are filled together: the probability of a filling sums over the paths through the model's states, and a
    beam search finds the most probable ones. Those that RDKit does not parse are left out.

    Parameters
    ----------
    smiles : str
        SMILES with [MASK] in the place of one or more tokens (atoms, bonds, ring digits, brackets).
    encoder : str or Path
        Directory of a model that `smilex.pretrain` saved, or the name of an encoder that ships with the package.
    top_k : int, default 5
        Completions to return, at most.

    Returns
    -------
    list of Filling
        Valid completions, most probable first. The probabilities are over all fillings, valid or not, so they need
        not sum to 1. The list is shorter than `top_k` where the search finds fewer.

    Raises
    ------
    SmilexError
        If there is no mask, something else than SMILES tokens, too many tokens, or no such encoder.

    Notes
    -----
    Zheng et al., ICML 2025, arXiv 2501.13397. The search extends partial fillings mask by mask; each is scored by its
    exact probability, the sum over states of (paths so far) × (ways to the last state).

    Examples
    --------
    >>> import tempfile
    >>> from smilex.modeling import ExLMConfig
    >>> directory = tempfile.mkdtemp()
    >>> ExLMForMaskedLM(ExLMConfig.from_preset("tiny")).save_pretrained(directory)
    >>> fillings = fill_mask("CC[MASK]", directory, top_k=3)
    >>> len(fillings), all(filling.smiles.startswith("CC") for filling in fillings)
    (3, True)
    """
    top_k = count("top_k", top_k)
    tokenizer = SmilesTokenizer()
    model = load_model(ExLMForMaskedLM, find_encoder(encoder))
    ids = _masked_ids(smiles, tokenizer, model.config.max_position_embeddings)
    masks = [place for place, token in enumerate(ids) if token == tokenizer.mask_token_id]
    with torch.inference_mode():
        output = model(torch.tensor([ids]))
        log_emission = output.logits[0].double().log_softmax(-1)
        log_emission[:, tokenizer.all_special_ids] = -math.inf
        fillings = most_probable_fillings(log_emission, _links(output.log_transitions, len(masks)), len(masks))
    found: list[Filling] = []
    for tokens, log_probability in fillings:
        for place, token in zip(masks, tokens, strict=True):
            ids[place] = token
        completed = str(tokenizer.decode(ids, skip_special_tokens=True))
        if _is_molecule(completed):
            found.append(Filling(completed, math.exp(log_probability)))
        if len(found) == top_k:
            break
    return found


def most_probable_fillings(
    log_emission: Tensor, log_transition: Tensor, num_masks: int, beam_width: int = BEAM_WIDTH
) -> list[tuple[list[int], float]]:
    """Search the most probable tokens of all masks together.

    Parameters
    ----------
    log_emission : Tensor, shape (S, V)
        log P[u, y] of the states of one molecule; −∞ for tokens that are not to be offered.
    log_transition : Tensor, shape (S, S)
        log E[u, v]; −∞ where there is no link.
    num_masks : int
        M; paths visit M + 2 states.
    beam_width : int
        Partial fillings to keep.

    Returns
    -------
    list of (token ids, log-probability)
        Most probable first. The probability is exact: the sum over all paths of M + 2 states from the first to the
        last one, given that the path has this many states.
    """
    ways = _ways_to_last_state(log_transition, num_masks + 2)  # (T, S)
    probs = log_emission.exp()
    tokens = torch.empty(1, 0, dtype=torch.long)
    forward = torch.full_like(log_emission[:1, :1].expand(1, len(log_transition)), -math.inf).clone()
    forward[0, 0] = 0.0  # (beams, S): paths to each state that emit the partial filling
    for step in range(1, num_masks + 1):
        arrived = torch.logsumexp(forward.unsqueeze(-1) + log_transition, dim=1)  # (beams, S)
        # log Σ_u exp(weight[u]) P[u, y], as a product of matrices: what the scaling loses is too small to count.
        weight = arrived + ways[step]
        largest = weight.amax(dim=1, keepdim=True).clamp_min(torch.finfo(weight.dtype).min)  # no way at all: −∞
        score = ((weight - largest).exp() @ probs).log() + largest  # (beams, V)
        best = score.flatten().topk(min(beam_width, score.numel()))
        beam, token = best.indices // score.shape[1], best.indices % score.shape[1]
        tokens = torch.cat([tokens[beam], token.unsqueeze(-1)], dim=1)
        forward = arrived[beam] + log_emission[:, token].T
    log_probability = best.values - ways[0, 0]
    possible = log_probability > -math.inf
    return list(zip(tokens[possible].tolist(), log_probability[possible].tolist(), strict=True))


def _ways_to_last_state(log_transition: Tensor, num_targets: int) -> Tensor:
    """Log-probability of reaching the last state in the steps that remain, for each step and state, (T, S)."""
    ways = [torch.full_like(log_transition[0], -math.inf)]
    ways[0][-1] = 0.0
    for _ in range(num_targets - 1):
        ways.append(torch.logsumexp(log_transition + ways[-1], dim=1))
    return torch.stack(ways[::-1])


def _links(log_transitions: Tensor | None, num_masks: int) -> Tensor:
    """Transitions of the one molecule; with one state per mask they lead from each to the next."""
    if log_transitions is not None:
        return log_transitions[0].double()
    return torch.full((num_masks + 2, num_masks + 2), -math.inf, dtype=torch.double).diagonal_scatter(
        torch.zeros(num_masks + 1, dtype=torch.double), offset=1
    )


def _masked_ids(smiles: str, tokenizer: SmilesTokenizer, max_length: int) -> list[int]:
    if not isinstance(smiles, str):
        raise SmilexError(f"fill_mask takes one SMILES string, not {type(smiles).__name__}")
    ids: list[int] = tokenizer(smiles, verbose=False)["input_ids"]
    if tokenizer.mask_token_id not in ids:
        raise SmilexError(f"no [MASK] in {smiles!r}: write it in the place of the tokens to find")
    if tokenizer.unk_token_id in ids or len(smiles.split()) > 1:
        raise SmilexError(f"{smiles!r} holds something that is no SMILES token")
    if len(ids) > max_length:
        raise SmilexError(f"{len(ids)} tokens with [CLS] and [SEP], the limit of this model is {max_length}")
    return ids


def _is_molecule(smiles: str) -> bool:
    try:
        parse(smiles)
    except InvalidSmilesError:
        return False
    return True
