"""What vectors know before any training on a property: `smilex-small` beside token objectives and random weights.

The molecules are 10 000 of the test parts of the MoleculeNet sets (scaffold split): no encoder was trained on any of
them. All encoders are of one size. Written are the figures of `smilex.analysis` and a map of ESOL.

    SMILEX_DATA=moleculenet python benchmarks/embeddings.py
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from cells import RESULTS
from matplotlib.figure import Figure
from moleculenet_encoders import ENCODERS
from pretrained_encoders import MAX_LENGTH, new_config
from pretraining_corpus import tested_molecules
from seed_tables import Column, markdown
from sklearn.manifold import TSNE
from sklearn.preprocessing import StandardScaler

import smilex
from smilex.analysis import analyze
from smilex.data.properties import load_properties
from smilex.modeling import ExLMModel
from smilex.runs import save_model, versions, write_json, write_text
from smilex.tokenization import SmilesTokenizer

COLUMNS = (
    Column("retrieval accuracy@1", ("retrieval_accuracy",), max),
    Column("agreement with Tanimoto", ("neighbourhood_agreement",), max),
    Column("effective rank, last layer", ("effective_rank", -1), digits=0),
    Column("alignment", ("alignment",)),
    Column("uniformity", ("uniformity",)),
    Column("entropy at masks", ("entropy",)),
)


def encoders(folder: Path) -> dict[str, str]:
    """Return what is compared: name → directory, or name in the package. Random weights are written to `folder`."""
    torch.manual_seed(0)
    save_model(ExLMModel(new_config("tiny")), SmilesTokenizer(), folder)
    trained = {name: str(ENCODERS / directory) for name, directory in (("MLM", "mlm"), ("ExLM", "exlm"))}
    return {"random weights": str(folder), **trained, "smilex-small": "smilex-small"}


def draw_molecules(number: int, seed: int) -> list[str]:
    """Choose so many molecules of the test parts at random, among those that the encoders can read."""
    tokenize = SmilesTokenizer().tokenize
    readable = [text for text in sorted(tested_molecules()) if len(tokenize(text)) + 2 <= MAX_LENGTH]  # [CLS], [SEP]
    return np.random.default_rng(seed).choice(readable, min(number, len(readable)), replace=False).tolist()


def measure(smiles: list[str], seed: int) -> dict[str, list[dict[str, Any]]]:
    """Analyse every encoder on the same molecules: name → its figures, in a list of one."""
    with TemporaryDirectory() as directory:
        compared = encoders(Path(directory)).items()
        return {name: [analyze(encoder, smiles, seed=seed).to_dict() | {"encoder": name}] for name, encoder in compared}


def plot_map(path: Path) -> None:
    """Draw ESOL by t-SNE of the vectors of `smilex-small`, coloured by solubility."""
    data = load_properties("esol")
    vectors = StandardScaler().fit_transform(smilex.embed(data.smiles))
    x, y = TSNE(perplexity=30, random_state=0, init="pca").fit_transform(vectors).T
    figure = Figure(figsize=(6, 4.6), layout="constrained")
    axes = figure.subplots()
    points = axes.scatter(x, y, s=12, c=data.targets[:, 0], cmap="viridis")
    axes.set(title="ESOL", xticks=[], yticks=[])
    figure.colorbar(points, label="measured solubility, log mol/L")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure, and write JSON, table and map."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--molecules", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="seed of molecules, masks, random SMILES and pairs")
    arguments = parser.parse_args()
    rows = measure(draw_molecules(arguments.molecules, arguments.seed), arguments.seed)
    write_json(RESULTS / "embeddings.json", {"versions": versions(), "encoders": [row for (row,) in rows.values()]})
    table = markdown("encoder", rows, COLUMNS)
    write_text(RESULTS / "embeddings.md", table)
    plot_map(RESULTS / "embeddings.png")
    print(table)


if __name__ == "__main__":
    main()
