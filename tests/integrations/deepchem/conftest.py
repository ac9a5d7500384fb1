"""Encoders for the tests of the featurizer and of the model."""

import pytest
import torch

from smilex import SmilesTokenizer
from smilex.modeling import ExLMConfig, ExLMModel
from smilex.modeling.loading import quiet_transformers

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="session")
def save_encoder():
    """Save an encoder whose weights depend on the seed."""

    def save(directory, seed, initializer_range):
        torch.manual_seed(seed)
        config = ExLMConfig(**SIZES, vocab_size=len(SmilesTokenizer()), initializer_range=initializer_range)
        with quiet_transformers():
            ExLMModel(config).save_pretrained(directory)
        return directory

    return save
