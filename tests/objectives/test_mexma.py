import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from smilex.chem import canonicalize
from smilex.data.molecules import Molecule
from smilex.modeling import ExLMConfig
from smilex.objectives.mexma import MEXMAObjective, koleo
from smilex.tokenization import SmilesTokenizer

TOKENIZER = SmilesTokenizer()
CONFIG = ExLMConfig.from_preset("tiny", vocab_size=len(TOKENIZER), initializer_range=0.2)
SMILES = ["CC(=O)Oc1ccccc1C(=O)O", "Cn1c(=O)c2c(ncn2C)n(C)c1=O", "CCOC(=O)CC", "C[C@H](N)C(=O)O"]
MASK, IGNORED = CONFIG.mask_token_id, -100


def collate(objective, smiles=tuple(SMILES), seed=0):
    return objective.collate([Molecule.read(canonicalize(text)) for text in smiles], np.random.default_rng(seed))


@pytest.fixture
def trained():
    """An objective, its model and a batch."""
    objective = MEXMAObjective(CONFIG)
    torch.manual_seed(0)
    return objective, objective.model_class(objective.config).eval(), collate(objective)


def rows(batch, name, half):
    n = len(batch[name]) // 2
    return batch[name][:n] if half == "A" else batch[name][n:]


# Batches


@pytest.mark.parametrize("masking", ["random", "span", "group"])
def test_a_batch_has_two_ways_of_writing_each_clean_and_masked(masking):
    batch = collate(MEXMAObjective(CONFIG, masking=masking))
    texts = TOKENIZER.batch_decode(batch["input_ids"], skip_special_tokens=True)
    assert texts[:4] == [canonicalize(text) for text in SMILES]
    assert [canonicalize(text) for text in texts[4:]] == texts[:4]
    assert texts[4:] != texts[:4]
    hidden = batch["masked_ids"] == MASK
    assert torch.equal(torch.where(hidden, batch["labels"], batch["masked_ids"]), batch["input_ids"])
    assert torch.equal(hidden, batch["labels"] != IGNORED)
    assert MASK not in batch["input_ids"]
    ordinary = (batch["input_ids"] != CONFIG.pad_token_id).sum(1) - 2
    assert torch.equal(hidden.sum(1), (0.4 * ordinary).round().long())


def test_random_smiles_differ_from_draw_to_draw_and_follow_from_the_seed():
    objective = MEXMAObjective(CONFIG)
    batches = [collate(objective, seed=seed) for seed in (1, 1, 2)]
    for name in batches[0]:
        assert torch.equal(batches[0][name], batches[1][name])
    assert batches[0]["input_ids"].tolist() != batches[2]["input_ids"].tolist()


# The loss


def test_loss_equals_four_passes_by_hand(trained):
    objective, model, batch = trained
    sentences, masked = {}, {}
    for half in "AB":
        sentences[half] = model.exlm(rows(batch, "input_ids", half)).last_hidden_state[:, 0]
        masked[half] = model.exlm(rows(batch, "masked_ids", half))
    entropies = []
    for half, other in ("AB", "BA"):
        of_half = []
        for row, labels in enumerate(rows(batch, "labels", half)):
            length = int(masked[half].attention_mask[row].sum())
            vectors = masked[half].last_hidden_state[row : row + 1, :length].clone()
            vectors[0, 0] = sentences[other][row]
            at_masks = labels[:length] != IGNORED
            scores = model.head(
                vectors,
                masked[half].token_position[row : row + 1, :length],
                masked[half].state_index[row : row + 1, :length],
                torch.ones(1, length, dtype=torch.bool),
                at_masks[None],
                model.exlm.word_embeddings.weight,
            )
            of_half.extend(
                -scores.log_softmax(-1)[place, token] for place, token in enumerate(labels[:length][at_masks])
            )
        entropies.append(sum(of_half) / len(of_half))
    parts = objective.losses(model, batch)
    expected = {
        "alignment_loss": ((sentences["A"] - sentences["B"]) ** 2).mean(),
        "token_loss": sum(entropies) / 2,
        "koleo_loss": (koleo(sentences["A"]) + koleo(sentences["B"])) / 2,
    }
    expected["loss"] = expected["alignment_loss"] + expected["token_loss"] + 0.01 * expected["koleo_loss"]
    assert parts.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(parts[name], value, rtol=1e-4, atol=1e-5, msg=name)


def gradients_of_token_loss(trained, half):
    """Cross-entropy at the masks of one half; its gradient at the vectors of all four passes."""
    _, model, batch = trained
    passes = []

    def keep(_module, _inputs, output):
        output.last_hidden_state.retain_grad()
        passes.append(output.last_hidden_state)

    hook = model.exlm.register_forward_hook(keep)
    output = model(batch["input_ids"], batch["masked_ids"])
    hook.remove()
    labels = batch["labels"].clone()
    n = len(labels) // 2
    hidden = labels != IGNORED
    labels[n:] = IGNORED if half == "A" else labels[n:]
    labels[:n] = IGNORED if half == "B" else labels[:n]
    F.cross_entropy(output.logits, labels[hidden], ignore_index=IGNORED).backward()
    clean, masked = (vectors.grad for vectors in passes)
    return {"clean A": clean[:n], "clean B": clean[n:], "masked A": masked[:n], "masked B": masked[n:]}


@pytest.mark.parametrize(("half", "other"), ["AB", "BA"])
def test_the_token_loss_reaches_its_own_tokens_and_the_sentence_of_the_other(trained, half, other):
    found = gradients_of_token_loss(trained, half)
    assert found[f"clean {other}"][:, 0].abs().sum(-1).min() > 0  # every molecule's [CLS]
    assert not found[f"clean {other}"][:, 1:].any()
    assert not found[f"clean {half}"].any()
    assert found[f"masked {half}"][:, 1:].any(-1).any(-1).all()
    assert not found[f"masked {half}"][:, 0].any()  # its own [CLS] has been replaced
    assert not found[f"masked {other}"].any()


def test_every_weight_learns(trained):
    objective, model, batch = trained
    objective.losses(model, batch)["loss"].backward()
    assert {name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()} == set()


def test_a_batch_of_one_molecule_has_a_finite_loss(trained):
    objective, model, _ = trained
    batch = collate(objective, smiles=["CCO"])
    parts = objective.losses(model, batch)
    assert parts["koleo_loss"] == 0
    parts["loss"].backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


def test_settings_of_the_method():
    objective = MEXMAObjective(ExLMConfig.from_preset("tiny", attention_probs_dropout_prob=0.1))
    assert objective.mask_ratio == 0.4
    assert objective.config.attention_probs_dropout_prob == 0.0
    assert objective.config.hidden_dropout_prob == 0.1
    assert objective.config.num_states == 1
    assert len(objective.model_class(objective.config).head.layers) == 2


# KoLeo


@given(st.integers(2, 12), st.integers(1, 6), st.integers(0, 1000))
def test_koleo_equals_a_plain_loop(n, width, seed):
    vectors = np.random.default_rng(seed).normal(size=(n, width))
    unit = [vector / math.sqrt(sum(x * x for x in vector)) for vector in vectors]
    total = 0.0
    for i in range(n):
        nearest = min(math.dist(unit[i], unit[j]) for j in range(n) if j != i)
        total -= math.log(nearest + 1e-8)
    # Where vectors nearly coincide, the nearest one by cosine may be another of those at the same distance.
    assert koleo(torch.from_numpy(vectors)).item() == pytest.approx(total / n, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("vectors", [torch.ones(3, 4), torch.zeros(3, 4), torch.tensor([[1.0, 0], [2.0, 0], [0, 1.0]])])
def test_koleo_of_identical_vectors_is_finite_and_so_is_its_gradient(vectors):
    vectors = vectors.clone().requires_grad_()
    loss = koleo(vectors)
    loss.backward()
    assert loss.isfinite()
    assert vectors.grad.isfinite().all()


def test_koleo_drives_vectors_apart():
    torch.manual_seed(0)
    vectors = (torch.tensor([1.0, 0.0, 0.0]) + 0.01 * torch.randn(5, 3)).requires_grad_()
    before = koleo(vectors)
    before.backward()
    assert koleo(vectors.detach() - 1e-4 * vectors.grad) < before


def test_koleo_in_half_precision_is_computed_in_float32():
    vectors = torch.randn(6, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert koleo(vectors).dtype == torch.float32
    torch.testing.assert_close(koleo(vectors), koleo(vectors.float()))
