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
