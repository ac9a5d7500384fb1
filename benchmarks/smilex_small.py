"""Train `smilex-small`, the encoder inside the package: ExLM first, then the descriptors of every molecule.

It goes on from the ExLM encoder of moleculenet_encoders.py, and learns the 214 descriptors of the corpus that
pretraining_corpus.py writes. An interrupted run goes on from its last checkpoint. The weights are written in half
precision, beside the report of the run and the manifest of the corpus.

    SMILEX_DATA=moleculenet python benchmarks/smilex_small.py chembl.smi.gz
"""

import argparse
import json
from pathlib import Path

from cells import PRECISION
from moleculenet_encoders import ENCODERS, export
from moleculenet_methods import SMALL
from pretraining_corpus import write_corpus

import smilex
from smilex.modeling import ExLMModel


def main() -> None:
    """Write the corpus, train on it, and put the encoder into the package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chembl", help="a file of ChEMBL molecules")
    parser.add_argument("--epochs", type=float, default=2, help="times that every molecule is read")
    parser.add_argument("--work-dir", type=Path, default=Path("runs/smilex-small"))
    arguments = parser.parse_args()
    corpus = arguments.work_dir / "corpus.smi"
    manifest = corpus.with_suffix(".json")
    if not manifest.is_file():
        write_corpus(arguments.chembl, corpus)
    run = smilex.pretrain(
        corpus,
        arguments.work_dir / "descriptors",
        "descriptors",
        encoder=ENCODERS / "exlm",
        epochs=arguments.epochs,
        precision=PRECISION,
        resume=True,
        progress=False,
    )
    export(run, ExLMModel, json.loads(manifest.read_text()), SMALL)
    print(json.dumps(run.metrics), f"{run.report['seconds']} s")


if __name__ == "__main__":
    main()
