"""What several test modules share."""

import os
from pathlib import Path

import pytest

# Tests are small: more threads than cores (one worker of pytest-xdist a core) only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SHARED = Path(__file__).parents[1] / ".." / "shared"


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Reference data beside the repository; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("the shared reference data is not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a very small pretrained encoder of an older version, which takes 40 tokens."""
    import torch

    from smilex import SmilesTokenizer
    from smilex.modeling import ExLMConfig, ExLMForMaskedLM
    from smilex.modeling.loading import quiet_transformers

    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("encoder")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = ExLMConfig(**sizes, vocab_size=len(SmilesTokenizer()), max_position_embeddings=40, smilex_version="0.0.1")
    with quiet_transformers():
        ExLMForMaskedLM(config).save_pretrained(directory)
    return directory
