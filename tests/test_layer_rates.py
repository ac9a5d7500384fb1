import re

import pytest
import torch

from smilex.layer_rates import parameter_groups
from smilex.modeling import ExLMConfig, ExLMForMoleculeProperty

LAYERS = 4


@pytest.fixture(scope="module")
def model():
    return ExLMForMoleculeProperty(ExLMConfig.from_preset("tiny", vocab_size=40))


def rates_by_name(model, groups):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)]: group["lr"] for group in groups for parameter in group["params"]}


def test_the_rate_falls_from_the_head_to_the_embedding(model):
    rates = rates_by_name(model, parameter_groups(model, 0.01, 0.8, 0.0, ()))
    powers = {
        r"(dense|output)\.": 0,
        r"exlm\.(final_norm|layers\.3)\.": 1,
        r"exlm\.layers\.2\.": 2,
        r"exlm\.layers\.1\.": 3,
        r"exlm\.layers\.0\.": 4,
        r"exlm\.(word_embeddings|embedding_norm)\.": 5,
    }
    assert set(rates) == {name for name, _ in model.named_parameters()}
    for name, rate in rates.items():
        (power,) = [power for pattern, power in powers.items() if re.match(pattern, name)]
        assert rate == pytest.approx(0.01 * 0.8**power), name


def test_without_decay_all_rates_are_one(model):
    assert set(rates_by_name(model, parameter_groups(model, 0.01, 1.0, 0.0, ())).values()) == {0.01}


def test_every_weight_stands_in_one_group_the_head_first(model):
    groups = parameter_groups(model, 0.01, 0.8, 0.1, ["dense.weight"])
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(map(id, model.parameters()))
    assert groups[0]["lr"] == 0.01


def test_weight_decay_is_for_the_named_weights_only(model):
    decayed = {"dense.weight", "exlm.layers.1.feed_forward.0.weight"}
    groups = parameter_groups(model, 0.01, 0.8, 0.1, decayed)
    found = {id(parameter) for group in groups if group["weight_decay"] == 0.1 for parameter in group["params"]}
    assert found == {id(parameter) for name, parameter in model.named_parameters() if name in decayed}
    assert {group["weight_decay"] for group in groups} == {0.1, 0.0}


def test_weights_that_are_not_trained_stand_in_no_group():
    model = ExLMForMoleculeProperty(ExLMConfig.from_preset("tiny", vocab_size=40))
    model.exlm.requires_grad_(False)  # noqa: FBT003 (torch's own signature)
    rates = rates_by_name(model, parameter_groups(model, 0.01, 0.8, 0.0, ()))
    assert set(rates) == {"dense.weight", "dense.bias", "output.weight", "output.bias"}


def test_an_optimizer_takes_the_groups(model):
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.01, 0.5, 0.1, ()), lr=1.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.01 * 0.5**depth for depth in range(LAYERS + 2)]
