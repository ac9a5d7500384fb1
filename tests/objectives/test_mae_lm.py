from pathlib import Path

import numpy as np
import pytest
import torch
from rdkit import RDConfig
from torch import nn

from smilex.data.molecules import Molecule
from smilex.modeling import ExLMConfig
from smilex.objectives import get_objective

CONFIG = ExLMConfig.from_preset("tiny", vocab_size=512)
MOLECULES = [
    Molecule.read(line.split()[0])
    for line in (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()[:200]
]
LENGTHS = np.array([len(molecule.input_ids) for molecule in MOLECULES])


def positions_seen(objective, molecules):
    """Positions that the encoder's first layer processes for a batch."""
    torch.manual_seed(0)
    model = objective.model_class(objective.config).eval()
    shapes = []
    hook = model.exlm.layers[0].register_forward_hook(lambda _module, inputs, _output: shapes.append(inputs[0].shape))
    objective.losses(model, objective.collate(molecules, np.random.default_rng(0)))
    hook.remove()
    assert len(shapes) == 1
    return shapes[0].numel() // shapes[0][-1]


@pytest.mark.parametrize("mask_ratio", [0.15, 0.3, 0.5])
@pytest.mark.parametrize("name", ["exlm", "mlm", "mae_lm"])
def test_encoded_lengths_are_what_the_encoder_processes(name, mask_ratio):
    objective = get_objective(name)(CONFIG, mask_ratio=mask_ratio)
    same_length = [molecule for molecule in MOLECULES if len(molecule.input_ids) == 20]
    expected = objective.encoded_lengths(np.full(len(same_length), 20)).sum()
    assert positions_seen(objective, same_length) == expected


@pytest.mark.parametrize("mask_ratio", [0.15, 0.3])
def test_the_encoder_is_spared_the_masked_positions(mask_ratio):
    positions = {
        name: get_objective(name)(CONFIG, mask_ratio=mask_ratio).encoded_lengths(LENGTHS).sum()
        for name in ("exlm", "mlm", "mae_lm")
    }
    masks = positions["mlm"] - positions["mae_lm"]
    assert masks / (positions["mlm"] - 2 * len(MOLECULES)) == pytest.approx(mask_ratio, abs=0.01)
    assert positions["exlm"] == positions["mlm"] + 3 * (masks + 2 * len(MOLECULES))


def test_what_stood_at_the_masks_does_not_matter():
    """Two molecules that differ at the hidden places only: the same batch but for the labels."""
    objective = get_objective("mae_lm")(CONFIG, mask_ratio=0.3)
    first = Molecule.read("CCOCCOCCN")
    places = objective.collate([first], np.random.default_rng(5))["labels"][0] != -100
    other = Molecule("", np.where(places.numpy(), 77, first.input_ids))
    batches = [objective.collate([molecule], np.random.default_rng(5)) for molecule in (first, other)]
    assert not torch.equal(batches[0]["labels"], batches[1]["labels"])
    model = objective.model_class(objective.config).eval()
    vectors = [model.encode(batch["input_ids"]).last_hidden_state for batch in batches]
    torch.testing.assert_close(vectors[0], vectors[1], rtol=0, atol=0)


def test_only_masks_are_worth_a_loss():
    objective = get_objective("mae_lm")(CONFIG)
    model: nn.Module = objective.model_class(objective.config).eval()
    batch = objective.collate(MOLECULES[:8], np.random.default_rng(0))
    assert set(objective.losses(model, batch)) == {"loss"}
    figures = objective.evaluate(model, [batch])
    assert figures["perplexity"] == pytest.approx(np.exp(figures["loss"]), rel=1e-4)
