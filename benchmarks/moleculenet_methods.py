"""The methods that `moleculenet.py` compares: each learns from the training part and predicts the two others.

Every method sees the same rows. Those that RDKit refuses, and those with more tokens than the encoders take, belong to
no part; the other rows lie where a scaffold split puts them, DeepChem's or another one, see `SPLITS`.
"""

import hashlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cells import PRECISION
from numpy.typing import NDArray
from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

import smilex
from smilex import DEFAULT_ENCODER
from smilex.baselines import ecfp4, random_forest
from smilex.data.properties import PropertyDataset, load_properties
from smilex.data.rows import InvalidMoleculeWarning, encode_rows
from smilex.data.splits import Split, split
from smilex.errors import SmilexError
from smilex.metrics import evaluate
from smilex.modeling.loading import SHIPPED
from smilex.recipe import Recipe

SMALL = SHIPPED / DEFAULT_ENCODER
"""The encoder of the package."""

MAX_LENGTH = 512
"""Tokens that the encoders take, with [CLS] and [SEP]."""

TREES = 300
CACHED_GRAPHS = 20_000
"""Molecules up to which all graphs are kept in memory, rather than made anew each epoch."""

CHEMPROP = {"epochs": 50, "batch_size": 64}

# Large sets need fewer passes for as many steps.
CHEMPROP_CHANGES = {"tox21": {"epochs": 30}, "toxcast": {"epochs": 30}, "muv": {"epochs": 3}}
RECIPE_CHANGES: dict[str, dict[str, Any]] = {
    "tox21": {"epochs": 30, "patience": 6},
    "toxcast": {"epochs": 30, "patience": 6},
    "muv": {"epochs": 3, "patience": 3, "batch_size": 128},
}

Scores = dict[str, dict[str, Any]]
"""Part → what `smilex.metrics.evaluate` says of it."""

Settings = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Problem:
    """A dataset, the parts that every method shares, and how many rows belong to none."""

    data: PropertyDataset
    parts: Split

    @property
    def rows(self) -> dict[str, int]:
        """Rows of each part, and of none."""
        counts = {name: len(part) for name, part in self.parts.parts().items()}
        return {**counts, "left_out": len(self.data) - sum(counts.values())}

    def smiles(self, part: NDArray[np.int64]) -> list[str]:
        """Molecules of a part, as the file writes them."""
        return [self.data.smiles[row] for row in part]

    def score(self, predictions: dict[str, NDArray[Any]]) -> Scores:
        """Compare the predictions of each part with its labels."""
        parts, data = self.parts.parts(), self.data
        return {
            name: evaluate(data.kind, data.targets[parts[name]], values, data.task_names)
            for name, values in predictions.items()
        }


@dataclass(frozen=True)
class Method:
    """One way from a training part to predictions.

    Parameters
    ----------
    train : callable
        Takes a problem, seeds, settings and a directory for files of its own; returns scores, one for each seed.
    settings : callable
        Takes the name of a dataset; returns what the result depends on besides data and seed.
    seeds_together : bool
        Whether one call trains seeds 0, 1, … and can train no other ones.
    lacks : str, optional
        What is missing on this computer to run it.
    """

    train: Callable[[Problem, Sequence[int], Settings, Path], list[Scores]]
    settings: Callable[[str], Settings]
    seeds_together: bool = False
    lacks: str | None = None


def all_methods(encoders: Path, model: str) -> dict[str, Method]:
    """Return every method by name; `encoders` holds those that `moleculenet_encoders.py` wrote."""
    without = None if find_spec("chemprop") else "chemprop is not installed: pip install 'smilex[benchmarks]'"
    return {
        "ecfp4_rf": Method(forest, lambda _: {"trees": TREES}),
        "chemprop": Method(message_passing, lambda name: CHEMPROP | CHEMPROP_CHANGES.get(name, {}), lacks=without),
        "scratch": _fine_tuning_method(None, model),
        "mlm": _fine_tuning_method(encoders / "mlm", model),
        "exlm": _fine_tuning_method(encoders / "exlm", model),
        "smilex_small": _fine_tuning_method(SMALL, model),
        "frozen_linear": _fine_tuning_method(SMALL, model, "linear"),
        "frozen_rf": _fine_tuning_method(SMALL, model, "random_forest"),
    }


def _fine_tuning_method(encoder: Path | None, model: str, head: str = "network") -> Method:
    lacks = None
    origin: Settings = {"model": model}
    if encoder is not None:
        weights = encoder / "model.safetensors"
        if weights.is_file():
            origin = {"encoder_sha256": hashlib.sha256(weights.read_bytes()).hexdigest()}
        else:
            lacks = f"there is no encoder in {encoder}: run moleculenet_encoders.py"
    return Method(
        partial(fine_tuning, encoder=encoder, model=model),
        lambda name: origin | _how_to_train(name, head),
        seeds_together=True,
        lacks=lacks,
    )


def _how_to_train(dataset: str, head: str) -> Settings:
    if head != "network":
        return {"head": head}
    return {"recipe": asdict(Recipe(precision=PRECISION, **RECIPE_CHANGES.get(dataset, {})))}


def chiral_scaffold_split(smiles: Sequence[str], usable: NDArray[np.bool_]) -> Split:
    """Split the usable rows as DeepChem does, but count scaffolds that differ in stereochemistry as different ones.

    Encoders of molecules are often compared on this split: Hu et al., ICLR 2020, arXiv 1905.12265.
    """
    groups: dict[str, list[int]] = {}
    for row in np.flatnonzero(usable):
        groups.setdefault(MurckoScaffoldSmiles(smiles[row], includeChirality=True), []).append(int(row))
    limits = 0.8 * usable.sum(), 0.9 * usable.sum()
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    train, valid, test = parts
    for rows in sorted(groups.values(), key=lambda rows: (len(rows), rows[0]), reverse=True):
        if len(train) + len(rows) <= limits[0]:
            train += rows
        elif len(train) + len(valid) + len(rows) <= limits[1]:
            valid += rows
        else:
            test += rows
    return Split(*(np.array(sorted(part)) for part in parts))


def scaffold_split(smiles: Sequence[str], usable: NDArray[np.bool_]) -> Split:
    """Split as DeepChem does, and leave out what is not usable."""
    return Split(*(part[usable[part]] for part in split(smiles, "scaffold").parts().values()))


SPLITS = {"scaffold": scaffold_split, "chiral_scaffold": chiral_scaffold_split}


@lru_cache(maxsize=1)
def load_problem(name: str, split_name: str = "scaffold") -> Problem:
    """Read a dataset and split it."""
    data = load_properties(name)
    encoded = encode_rows(data.smiles, smilex.SmilesTokenizer(), max_length=MAX_LENGTH)
    usable = np.array([ids is not None for ids in encoded.input_ids])
    return Problem(data, SPLITS[split_name](data.smiles, usable))


def forest(problem: Problem, seeds: Sequence[int], settings: Settings, _: Path) -> list[Scores]:
    """Train a random forest on ECFP4 fingerprints for each task and seed."""
    bits, parts = _fingerprints(problem), problem.parts
    runs = []
    for seed in seeds:
        tested = np.concatenate([parts.valid, parts.test])
        predicted = random_forest(
            bits[parts.train],
            problem.data.targets[parts.train],
            bits[tested],
            problem.data.kind,
            n_trees=settings["trees"],
            seed=seed,
        )
        valid, test = np.split(predicted, [len(parts.valid)])
        runs.append(problem.score({"valid": valid, "test": test}))
    return runs


@lru_cache(maxsize=1)
def _fingerprints(problem: Problem) -> NDArray[np.uint8]:
    return ecfp4(problem.data.smiles)[0]


def message_passing(problem: Problem, seeds: Sequence[int], settings: Settings, directory: Path) -> list[Scores]:
    """Train chemprop's default model for each seed."""
    with quiet():
        return [_message_passing(problem, seed, settings, directory / f"seed-{seed}") for seed in seeds]


def _message_passing(problem: Problem, seed: int, settings: Settings, directory: Path) -> Scores:
    """Train one network, and predict with the weights of its best epoch."""
    import torch
    from chemprop.data import build_dataloader
    from chemprop.models import MPNN

    trainer, sets = fit_chemprop(problem, seed, settings, directory)
    network = MPNN.load_from_checkpoint(trainer.checkpoint_callback.best_model_path)
    predictions = {}
    for name in ("valid", "test"):
        # Without it, chemprop drops a last batch of one molecule.
        loader = build_dataloader(sets[name], settings["batch_size"], shuffle=False, drop_last=False)
        predictions[name] = torch.cat(trainer.predict(network, loader)).numpy()
    return problem.score(predictions)


def fit_chemprop(
    problem: Problem, seed: int, settings: Settings, directory: Path, callbacks: Sequence[Any] = ()
) -> tuple[Any, dict[str, Any]]:
    """Train one network as chemprop's documentation does; return lightning's trainer and the parts as chemprop's sets.

    The weights of the best epoch are in `directory`.
    """
    from chemprop.data import MoleculeDatapoint, MoleculeDataset, build_dataloader
    from chemprop.models import MPNN
    from chemprop.nn import (
        BinaryClassificationFFN,
        BondMessagePassing,
        MeanAggregation,
        RegressionFFN,
        UnscaleTransform,
    )
    from lightning import pytorch as pl

    pl.seed_everything(seed, verbose=False)
    data, tasks = problem.data, len(problem.data.task_names)
    sets = {}
    for name, part in problem.parts.parts().items():
        rows = zip(problem.smiles(part), data.targets[part], strict=True)
        sets[name] = MoleculeDataset([MoleculeDatapoint.from_smi(text, labels) for text, labels in rows])
        sets[name].cache = len(data) < CACHED_GRAPHS
    if data.kind == "regression":
        scaler = sets["train"].normalize_targets()
        sets["valid"].normalize_targets(scaler)
        head = RegressionFFN(n_tasks=tasks, output_transform=UnscaleTransform.from_standard_scaler(scaler))
    else:
        head = BinaryClassificationFFN(n_tasks=tasks)
    network = MPNN(BondMessagePassing(), MeanAggregation(), head)
    trainer = pl.Trainer(
        max_epochs=settings["epochs"],
        callbacks=[pl.callbacks.ModelCheckpoint(directory, monitor="val_loss", mode="min", save_top_k=1), *callbacks],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    size = settings["batch_size"]
    valid = build_dataloader(sets["valid"], size, shuffle=False, drop_last=False)
    trainer.fit(network, build_dataloader(sets["train"], size, seed=seed), valid)
    return trainer, sets


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what chemprop and lightning print, log and warn of from the terminal."""
    loggers = [logging.getLogger(name) for name in ("lightning", "lightning.pytorch", "lightning.fabric", "chemprop")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        import lightning.pytorch  # noqa: F401 (sets the level of its logger when it is imported)

        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def fine_tuning(
    problem: Problem,
    seeds: Sequence[int],
    settings: Settings,
    directory: Path,
    encoder: Path | None,
    model: str,
) -> list[Scores]:
    """Fine-tune an encoder, train one from scratch, or fit a head on a frozen one, with the seeds 0, 1, ….

    A linear head has no chance in it: its figures are those of every seed.
    """
    data = problem.data
    part_of_row = np.full(len(data), "", dtype=object)
    for name, part in problem.parts.parts().items():
        part_of_row[part] = name
    table = pd.DataFrame(data.targets, columns=data.task_names)
    table.insert(0, "smiles", data.smiles)
    table.insert(1, "part", part_of_row)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InvalidMoleculeWarning)  # the benchmark counts the rows left out
        tuned = smilex.finetune(
            table,
            directory,
            encoder,
            model=model if encoder is None else None,
            target=data.task_names,
            split="column",
            split_column="part",
            seeds=len(seeds),
            head=settings.get("head", "network"),
            **settings.get("recipe", {}),
            progress=False,
        )
    if tuned.predictions["part"].tolist() != part_of_row.tolist():
        raise SmilexError("fine-tuning left out other rows than the benchmark")
    metrics = tuned.report["metrics"]
    return [
        {part: metrics[part]["seeds"][index % tuned.report["models"]] for part in ("valid", "test")}
        for index in range(len(seeds))
    ]
