"""Fine-tuning: seconds of an epoch on BBBP, validation included, beside chemprop.

Both train as in `moleculenet.py`: the same parts, the default batches of each. Our encoder is a new one, whose epochs
take as long as those of a pretrained one.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from moleculenet_methods import CHEMPROP, MAX_LENGTH, Problem, fit_chemprop, load_problem, quiet
from throughput_measure import Figures, Size, take_turns
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from smilex.data.rows import encode_rows
from smilex.errors import SmilexError
from smilex.modeling import ExLMForMoleculeProperty
from smilex.precision import Precision
from smilex.property_task import PropertyTask
from smilex.property_training import PropertyTrainer, property_config
from smilex.recipe import Recipe
from smilex.tokenization import SmilesTokenizer

DATASET = "bbbp"


def lacks() -> str | None:
    """Say what is missing to answer the question; None where it can be answered."""
    if find_spec("chemprop") is None:
        return "chemprop is not installed: pip install 'smilex[benchmarks]'"
    try:
        load_problem(DATASET)
    except SmilexError as error:
        return str(error)
    return None


class EpochStarts(TrainerCallback):
    """When each epoch began."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Note the time."""
        self.times.append(time.perf_counter())


def last_whole_epoch(times: list[float]) -> float:
    """Seconds between the last two starts; the first epochs make graphs and warm up."""
    return times[-1] - times[-2]


def our_epoch(task: PropertyTask, model: str, epochs: int, precision: Precision, folder: Path) -> float:
    """Fine-tune a new encoder with the default recipe."""
    recipe = Recipe(epochs=epochs, patience=epochs, precision=precision)
    starts = EpochStarts()
    with TemporaryDirectory(dir=folder) as place:
        torch.manual_seed(0)
        network = ExLMForMoleculeProperty(property_config(task.data, None, model, "mean", recipe))
        trainer = PropertyTrainer(network, task, recipe, Path(place), 0, progress=False)
        trainer.add_callback(starts)
        trainer.train()
    return last_whole_epoch(starts.times)


def chemprop_epoch(problem: Problem, epochs: int, folder: Path) -> float:
    """Train chemprop's default network."""
    with TemporaryDirectory(dir=folder) as place, quiet(), _global_seed_kept():
        from lightning.pytorch import Callback

        times: list[float] = []

        class Starts(Callback):
            def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
                times.append(time.perf_counter())

        fit_chemprop(problem, 0, CHEMPROP | {"epochs": epochs}, Path(place), [Starts()])
    return last_whole_epoch(times)


@contextmanager
def _global_seed_kept() -> Iterator[None]:
    """Keep chemprop's seeding from what comes after it."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def measure(size: Size, folder: Path) -> Figures:
    """Measure the seconds of an epoch."""
    problem = load_problem(DATASET)
    encoded = encode_rows(problem.data.smiles, SmilesTokenizer(), max_length=MAX_LENGTH)
    task = PropertyTask(problem.data, encoded, problem.parts)
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    rows: dict[str, Callable[[], float]] = {
        f"smilex {size.model} {precision}": partial(our_epoch, task, size.model, size.epochs, precision, folder)
        for precision in precisions
    }
    rows["chemprop"] = partial(chemprop_epoch, problem, size.epochs, folder)
    found = take_turns(rows, size.rounds)
    batches = {"smilex": Recipe().batch_size, "chemprop": CHEMPROP["batch_size"]}
    about = {"dataset": DATASET, "parts": problem.rows, "batch_size": batches, "chemprop": version("chemprop")}
    return {"unit": "s/epoch", "rows": found, **about}
