"""Pretrain the encoders that `moleculenet.py` fine-tunes: one by MLM, one by ExLM, on the same molecules.

The corpus is a file of unlabelled molecules, for example a sample of ChEMBL. Molecules of the test part of any
benchmark set (scaffold split, compared by the canonical SMILES of their largest fragment) are left out of it, so that
no encoder has seen a molecule that it is tested on. Both encoders read every molecule `--epochs` times, masked at the
same ratio. Interrupted runs go on from their last checkpoint.

    SMILEX_DATA=moleculenet python benchmarks/moleculenet_encoders.py chembl.smi.gz
"""

import argparse
import json
from contextlib import suppress
from pathlib import Path

import smilex
from smilex.data.cleaning import RemovalError, clean_row
from smilex.data.corpus import load_corpus
from smilex.data.properties import load_properties
from smilex.data.splits import split

SETS = ("bace", "bbbp", "clintox", "sider", "tox21", "toxcast", "muv", "esol", "freesolv", "lipophilicity")
OBJECTIVES = ("exlm", "mlm")


def tested_molecules() -> set[str]:
    """Every molecule of a test part, as cleaning writes those of a corpus."""
    found = set()
    for name in SETS:
        smiles = load_properties(name).smiles
        for row in split(smiles, "scaffold").test:
            with suppress(RemovalError):
                found.add(clean_row(smiles[row]))
    return found


def untested_corpus(source: str, path: Path) -> Path:
    """Write the molecules of a corpus that no test part holds, one a line, and how many were left out."""
    if not path.is_file():
        tested = tested_molecules()
        corpus = load_corpus(source)
        kept = [text for text in corpus.dataset["smiles"] if text not in tested]
        counts = {"molecules": len(corpus.dataset), "tested_left_out": len(corpus.dataset) - len(kept)}
        path.with_suffix(".json").write_text(json.dumps({"source": Path(source).name, **counts}, indent=2) + "\n")
        partial = path.with_suffix(".partial")
        partial.write_text("\n".join(kept) + "\n")
        partial.rename(path)
    return path


def main() -> None:
    """Write the corpus and pretrain on it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="a file, or a built-in name as smilex.pretrain takes it")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--mask-ratio", type=float, default=0.15)
    parser.add_argument("--work-dir", type=Path, default=Path("runs/moleculenet"))
    arguments = parser.parse_args()
    arguments.work_dir.mkdir(parents=True, exist_ok=True)
    corpus = untested_corpus(arguments.corpus, arguments.work_dir / "corpus.smi")
    print(corpus.with_suffix(".json").read_text())
    for objective in OBJECTIVES:
        run = smilex.pretrain(
            corpus,
            arguments.work_dir / objective,
            objective,
            arguments.model,
            epochs=arguments.epochs,
            mask_ratio=arguments.mask_ratio,
            resume=True,
            progress=False,
        )
        print(objective, json.dumps(run.metrics), f"{run.report['seconds']} s")


if __name__ == "__main__":
    main()
