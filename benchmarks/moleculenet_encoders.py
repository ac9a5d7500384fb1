"""Pretrain the encoders that `moleculenet.py` compares token objectives by: one by MLM, one by ExLM.

The corpus is a file of unlabelled molecules, for example a sample of ChEMBL. Molecules of the test part of any
benchmark set (scaffold split, compared by the canonical SMILES of their largest fragment) are left out of it, so that
no encoder has seen a molecule that it is tested on. Both read every molecule `--epochs` times, masked at the same
ratio. Interrupted runs go on from their last checkpoint. What comes out is written to `encoders/`, in half precision
and with the report of its run; the encoders that stand there were made by the command below, ExLM's with
`--precision bf16`, from 235 891 molecules of ChEMBL (CC BY-SA 3.0).

    SMILEX_DATA=moleculenet python benchmarks/moleculenet_encoders.py chembl.smi.gz
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from pretraining_corpus import tested_molecules

import smilex
from smilex.data.corpus import load_corpus
from smilex.modeling import ExLMForMaskedLM
from smilex.modeling.encoder import ExLMPreTrainedModel
from smilex.modeling.loading import load_model
from smilex.pretraining import PretrainResult
from smilex.runs import save_model, write_json
from smilex.tokenization import SmilesTokenizer
from smilex.writing import write_text

ENCODERS = Path(__file__).parent / "encoders"

OBJECTIVES = ("exlm", "mlm")


def untested_corpus(source: str, path: Path) -> Path:
    """Write the molecules of a corpus that no test part holds, one a line, and how many were left out."""
    if not path.is_file():
        tested = tested_molecules()
        corpus = load_corpus(source)
        kept = [text for text in corpus.dataset["smiles"] if text not in tested]
        counts = {"molecules": len(corpus.dataset), "tested_left_out": len(corpus.dataset) - len(kept)}
        write_json(path.with_suffix(".json"), {"name": path.name, "source": Path(source).name, **counts})
        write_text(path, "\n".join(kept) + "\n")
    return path


def export(run: PretrainResult, kind: type[ExLMPreTrainedModel], manifest: dict[str, Any], directory: Path) -> None:
    """Write an encoder in half precision, and how it was made from which molecules."""
    directory.mkdir(parents=True, exist_ok=True)
    save_model(load_model(kind, run.output_dir).to(torch.float16), SmilesTokenizer(), directory)
    write_json(directory / "report.json", {**run.report, "corpus": {**run.report["corpus"], **manifest}})


def main() -> None:
    """Write the corpus and pretrain on it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="a file, or a built-in name as smilex.pretrain takes it")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--mask-ratio", type=float, default=0.15)
    parser.add_argument("--precision", choices=["fp32", "bf16"])
    parser.add_argument("--work-dir", type=Path, default=Path("runs/moleculenet"))
    arguments = parser.parse_args()
    arguments.work_dir.mkdir(parents=True, exist_ok=True)
    corpus = untested_corpus(arguments.corpus, arguments.work_dir / "corpus.smi")
    manifest = corpus.with_suffix(".json").read_text()
    print(manifest)
    shared = {"precision": arguments.precision, "resume": True, "progress": False}
    for objective in OBJECTIVES:
        settings = {"model": arguments.model, "epochs": arguments.epochs, "mask_ratio": arguments.mask_ratio, **shared}
        run = smilex.pretrain(corpus, arguments.work_dir / objective, objective, **settings)
        export(run, ExLMForMaskedLM, json.loads(manifest), ENCODERS / objective)
        print(objective, json.dumps(run.metrics), f"{run.report['seconds']} s")


if __name__ == "__main__":
    main()
