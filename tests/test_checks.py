import pathlib
import re

import numpy as np
import pytest

import smilex
from smilex.analysis import analyze
from smilex.checks import count, folder, number
from smilex.chem import enumerate_smiles
from smilex.data.splits import scaffold_folds, split
from smilex.errors import SmilexError

SMILES = ["CCO", "c1ccccc1", "C1CC1", "C1CCC1", "CCN"]

SEEDED = {
    "pretrain": lambda seed, path: smilex.pretrain(SMILES, path, "mlm", model="tiny", max_steps=1, seed=seed),
    "split": lambda seed, _: split(SMILES, "random", seed=seed),
    "folds": lambda seed, _: scaffold_folds(SMILES, 3, seed=seed),
    "analyze": lambda seed, _: analyze("smilex-small", SMILES, seed=seed),
}


@pytest.mark.parametrize("use", SEEDED.values(), ids=SEEDED)
@pytest.mark.parametrize("seed", ["a", None, 1.5, -1, True, [1], np.nan])
def test_seeds_that_are_none(use, seed, tmp_path):
    with pytest.raises(SmilexError, match=f"^seed must be [^\n]*, not {re.escape(repr(seed))}$"):
        use(seed, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("use", SEEDED.values(), ids=SEEDED)
def test_seeds_of_numpy_are_seeds(use, tmp_path):
    use(np.int64(3), tmp_path / "run")


@pytest.mark.parametrize("directory", [None, 3, ["runs"], b"runs"])
def test_directories_that_are_no_name(directory):
    with pytest.raises(SmilexError, match=f"^output_dir must be a directory, not {re.escape(repr(directory))}$"):
        smilex.pretrain(SMILES, directory, max_steps=1)
    with pytest.raises(SmilexError, match=f"^output_dir must be a directory, not {re.escape(repr(directory))}$"):
        smilex.finetune("nav17", directory)
    assert folder("output_dir", pathlib.Path("runs")) == pathlib.Path("runs")


@pytest.mark.parametrize("ratio", ["a", [1], True, 0, -0.1, 1.1, np.nan])
def test_mask_ratios_that_are_no_share(ratio, tmp_path):
    with pytest.raises(SmilexError, match=r"^mask_ratio "):
        analyze("smilex-small", SMILES, mask_ratio=ratio)
    with pytest.raises(SmilexError, match=r"^mask_ratio "):
        smilex.pretrain(SMILES, tmp_path / "run", model="tiny", max_steps=1, mask_ratio=ratio)


def test_counts_know_their_least():
    assert count("n", 0, at_least=0) == 0
    with pytest.raises(SmilexError, match=r"^n must be at least 0, not -1$"):
        enumerate_smiles("CCO", -1)
    with pytest.raises(SmilexError, match=r"^top_k must be at least 1, not 0$"):
        smilex.fill_mask("C[MASK]", top_k=0)
    assert number("x", np.float32(0.5)) == 0.5
