"""What the benchmarks of pretraining share: encoders that are trained once, and what is read off them."""

import hashlib
import json
import shutil
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from cells import PRECISION

import smilex
from smilex.analysis import analyze
from smilex.data.corpus import Corpus, load_corpus
from smilex.data.properties import PropertyDataset, load_properties
from smilex.data.rows import EncodedRows, encode_rows
from smilex.data.splits import Split, split
from smilex.frozen import train_heads
from smilex.metrics import evaluate
from smilex.modeling import ExLMConfig
from smilex.modeling.loading import starting_config
from smilex.objectives import get_objective
from smilex.pretraining import PretrainResult
from smilex.pretraining_data import PretrainingData
from smilex.property_task import PropertyTask
from smilex.property_training import property_config
from smilex.recipe import Recipe
from smilex.tokenization import SmilesTokenizer

TOKENS_PER_BATCH = 2048
"""Tokens of the molecules of a batch, before anything is expanded or left out."""

MAX_LENGTH = 512
"""Tokens of the longest molecule, [CLS] and [SEP] included."""


@lru_cache(maxsize=1)
def open_corpus(name: str) -> Corpus:
    """Read, clean and tokenise a corpus, once."""
    return load_corpus(name, max_length=MAX_LENGTH, progress=False)


def tokens_per_batch(objective: str, config: ExLMConfig, corpus: Corpus, **settings: Any) -> int:
    """Room for as many molecules a batch as a plain masked language model has, whatever the objective makes of them.

    With the same room for all, an objective that expands the molecules would take more steps on as many of them.
    """
    lengths = corpus.dataset.with_format("numpy")["length"][:].astype(np.int64)
    encoded = get_objective(objective)(config, **settings).encoded_lengths(lengths)
    return round(TOKENS_PER_BATCH * encoded.sum() / lengths.sum())


def pretrained(
    work_dir: Path, corpus: str, objective: str, *, encoder: Path | None = None, **settings: Any
) -> PretrainResult:
    """Pretrain an encoder, or take one of the same settings that is there.

    Parameters
    ----------
    work_dir : Path
        Directory of the benchmark. The encoder lies in a directory of its own, which is named by its settings; one that
        was cut off starts anew.
    corpus, objective, encoder, **settings
        As for `smilex.pretrain`; `model` is a configuration.
    """
    settings["precision"] = PRECISION
    model = settings.get("model")
    content = {
        **settings,
        "corpus": open_corpus(corpus).fingerprint,
        "model": None if model is None else model.own_fields(),
        "encoder": None if encoder is None else encoder.name,
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    directory = work_dir / "encoders" / f"{objective}-{digest}"
    if not (directory / "report.json").is_file():
        shutil.rmtree(directory, ignore_errors=True)
    return smilex.pretrain(corpus, directory, objective, encoder=encoder, **settings, resume=True, progress=False)


def new_config(size: str, **fields: Any) -> ExLMConfig:
    """Configure an encoder from scratch."""
    return starting_config(None, size, max_position_embeddings=MAX_LENGTH, **fields)


def data_settings(corpus: str, datasets: list[str]) -> dict[str, Any]:
    """Return what the figures of every encoder depend on, whatever it starts from."""
    return {
        "corpus": open_corpus(corpus).fingerprint,
        "precision": PRECISION,
        "datasets": {name: load_properties(name).fingerprint for name in datasets},
    }


def encoder_settings(corpus: str, model: str, datasets: list[str]) -> dict[str, Any]:
    """Return what the figures of every encoder that starts from scratch depend on."""
    return {**data_settings(corpus, datasets), "model": model, "tokens_per_batch": TOKENS_PER_BATCH}


def training_figures(*runs: PretrainResult) -> dict[str, Any]:
    """Give steps and seconds of one run after the other, and the figures on the held-out molecules after each."""
    stages = [
        {
            "objective": run.report["settings"]["objective"],
            "steps": run.report["steps"],
            "seconds": run.report["seconds"],
            "held_out": run.metrics,
        }
        for run in runs
    ]
    return {"stages": stages, "seconds": round(sum(stage["seconds"] for stage in stages), 1)}


def held_out_smiles(corpus: str, seed: int) -> list[str]:
    """Molecules that no pretraining run with this seed is trained on."""
    opened = open_corpus(corpus)
    rows = PretrainingData(opened, get_objective("mlm")(new_config("tiny")), seed).held_out_rows
    return opened.dataset[np.sort(rows)]["smiles"]


def analysis_figures(encoder: Path, corpus: str, pooling: str, seed: int) -> dict[str, Any]:
    """Figures of `smilex.analysis` on the held-out molecules."""
    figures = analyze(encoder, held_out_smiles(corpus, seed), pooling, seed=seed).to_dict()
    del figures["encoder"]
    last = {name: figures[name][-1] for name in ("effective_rank", "effective_rank_with_masks")}
    return {"analysis": {**figures, **{f"last_{name}": rank for name, rank in last.items()}}}


@lru_cache(maxsize=8)
def _molecules(dataset: str) -> tuple[PropertyDataset, EncodedRows, Split]:
    """Read a dataset, tokenise it and split it by scaffold, once for all encoders; bad rows belong to no part."""
    data = load_properties(dataset)
    rows = encode_rows(data.smiles, SmilesTokenizer(), max_length=MAX_LENGTH)
    smiles = [text if ids is not None else "" for text, ids in zip(data.smiles, rows.input_ids, strict=True)]
    return data, rows, split(smiles, "scaffold")


def linear_probe(encoder: Path, dataset: str, pooling: str = "mean", copies: int = 1) -> dict[str, float]:
    """Fit what ``smilex.finetune(…, head="linear")`` fits, a linear model on the vectors of the frozen encoder.

    Parameters
    ----------
    encoder : Path
        Directory of the encoder.
    dataset : str
        What to predict, split by scaffold.
    pooling : {"mean", "cls"}, default "mean"
        Vector of a molecule.
    copies : int, default 1
        How many times each token of a molecule is written, for encoders that were trained so.

    Returns
    -------
    dict
        ROC-AUC or RMSE, mean over tasks, of the "valid" and "test" parts.
    """
    data, rows, parts = _molecules(dataset)
    written = [ids and repeated(ids, copies) for ids in rows.input_ids]
    task = PropertyTask(data, EncodedRows(written, rows.invalid), parts)
    recipe = Recipe()
    config = property_config(data, encoder, None, pooling, recipe)
    with TemporaryDirectory() as directory:
        (predictions,) = train_heads("linear", task, config, encoder, recipe, Path(directory), seeds=1)
    figure = figure_of(data.kind)
    scores = {
        name: evaluate(data.kind, data.targets[part], predictions[part], data.task_names)["mean"][figure]
        for name, part in (("valid", parts.valid), ("test", parts.test))
    }
    return {"figure": figure, **scores}


def figure_of(kind: str) -> str:
    """Return the figure that counts for classes or for measured values."""
    return "roc_auc" if kind == "classification" else "rmse"


def repeated(ids: list[int], copies: int) -> list[int]:
    """Write each token of a molecule so many times, [CLS] and [SEP] once."""
    return [ids[0], *np.repeat(ids[1:-1], copies).tolist(), ids[-1]]


def probe_figures(encoder: Path, datasets: list[str], pooling: str = "mean", copies: int = 1) -> dict[str, Any]:
    """Linear probes of several datasets."""
    return {"probe": {name: linear_probe(encoder, name, pooling, copies) for name in datasets}}
