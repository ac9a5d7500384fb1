"""An encoder and molecules for the tests of the estimators."""

import pickle

import joblib
import pytest
import torch

from smilex import SmilesTokenizer
from smilex.modeling import ExLMConfig, ExLMModel
from smilex.modeling.loading import quiet_transformers

RINGS = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CC1", "c1ccsc1", "C1CCNCC1", "c1ccoc1", "C1CCC1"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """Save a small encoder whose vectors differ clearly between molecules."""
    directory = tmp_path_factory.mktemp("encoder")
    torch.manual_seed(7)
    with quiet_transformers():
        ExLMModel(ExLMConfig(**SIZES, vocab_size=len(SmilesTokenizer()), initializer_range=0.1)).save_pretrained(
            directory
        )
    return str(directory)


@pytest.fixture(scope="session")
def molecules():
    """64 different SMILES."""
    return ["C" * n + ring + end for ring in RINGS for n in range(1, 5) for end in ("", "O")]


@pytest.fixture
def quick(encoder):
    """Settings of a fit that takes a fraction of a second."""
    return {"encoder": encoder, "epochs": 1, "batch_size": 64, "random_state": 0}


@pytest.fixture
def reloaded(tmp_path):
    """Return an estimator as pickle and joblib give it back."""

    def reload(estimator):
        joblib.dump(estimator, tmp_path / "estimator.joblib")
        return [
            pickle.loads(pickle.dumps(estimator)),  # noqa: S301 (our own bytes)
            joblib.load(tmp_path / "estimator.joblib"),
        ]

    return reload
