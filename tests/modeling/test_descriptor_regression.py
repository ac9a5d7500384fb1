import pytest
import torch

from smilex.data.descriptors import DESCRIPTOR_NAMES
from smilex.modeling import ExLMConfig
from smilex.modeling.descriptor_regression import ExLMForDescriptors

IDS = torch.tensor([[2, 20, 21, 22, 3], [2, 23, 3, 0, 0]])


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_prediction_is_linear_in_the_pooled_vector(pooling):
    torch.manual_seed(0)
    model = ExLMForDescriptors(ExLMConfig.from_preset("tiny")).eval()
    found = model(IDS, pooling)
    assert found.shape == (2, len(DESCRIPTOR_NAMES))
    vectors = model.exlm(IDS).pool(pooling)
    torch.testing.assert_close(found, vectors @ model.head.weight.T + model.head.bias)
    torch.testing.assert_close(found[1:], model(IDS[1:, :3], pooling), rtol=1e-4, atol=1e-5)  # padding is not seen


def test_pooling_is_the_mean_unless_told():
    model = ExLMForDescriptors(ExLMConfig.from_preset("tiny")).eval()
    assert torch.equal(model(IDS), model(IDS, "mean"))
    assert not torch.equal(model(IDS), model(IDS, "cls"))
