"""What the questions of `throughput.py` share: sizes, rounds that take turns, the limits of the machine, workers."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}

Figures = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Parameters
    ----------
    rounds : int
        Times that everything is measured, in turns, after once that does not count.
    model : str
        Preset of the encoders.
    gemm : int
        Width of the square matrices whose product sets the limit.
    corpus : int
        Molecules of the mixed corpus; the embedding question encodes all of them once, for the peak memory.
    tokenized, trained, embedded, cleaned : int
        Molecules a round of the questions.
    epochs : int
        Epochs that fine-tuning is run for; the last but one is measured.
    loaded : tuple of int
        Molecules of the files whose loading is measured once each.
    """

    rounds: int = 5
    model: str = "small"
    gemm: int = 2048
    corpus: int = 100_000
    tokenized: int = 10_000
    trained: int = 1_500
    embedded: int = 4_000
    cleaned: int = 4_000
    epochs: int = 4
    loaded: tuple[int, ...] = (100_000, 1_000_000, 1_900_000)


QUICK = Size(
    rounds=1,
    model="tiny",
    gemm=128,
    corpus=120,
    tokenized=100,
    trained=40,
    embedded=60,
    cleaned=60,
    epochs=3,
    loaded=(50, 100),
)
"""Enough to see that everything works, in seconds."""


def take_turns(rows: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Figures]:
    """Measure each row once a round, so that a machine that slows down slows all of them; the first round warms up.

    Parameters
    ----------
    rows : mapping of str to callable
        Name → measurement of one round.
    rounds : int
        Rounds that count; each begins with another row.

    Returns
    -------
    dict
        Name → "median", "min" and "max" over the rounds, and the "rounds" themselves.
    """
    names = list(rows)
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-1, rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            value = rows[name]()
            if number >= 0:
                found[name].append(value)
    return {
        name: {"median": statistics.median(values), "min": min(values), "max": max(values), "rounds": values}
        for name, values in found.items()
    }


def rate(function: Callable[[], object], molecules: int) -> Callable[[], float]:
    """Measure how many molecules a second a function works through."""

    def measure() -> float:
        start = time.perf_counter()
        function()
        return molecules / (time.perf_counter() - start)

    return measure


def gemm_gflops(size: int, dtype: torch.dtype) -> float:
    """Floating-point operations a second of a matrix product, in 10⁹: 2 · size³ for each of some products."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator).to(dtype) for _ in range(2))
    product = torch.empty(size, size, dtype=dtype)
    products = 8
    start = time.perf_counter()
    for _ in range(products):
        torch.mm(left, right, out=product)
    return 2 * size**3 * products / (time.perf_counter() - start) / 1e9


def limits(size: int) -> dict[str, Callable[[], float]]:
    """Return the measurements of the limit, a row for each precision."""

    def of(dtype: torch.dtype) -> Callable[[], float]:
        return lambda: gemm_gflops(size, dtype)

    return {f"limit {precision}": of(dtype) for precision, dtype in PRECISIONS.items()}


def split_limits(rows: dict[str, Figures]) -> tuple[dict[str, Figures], dict[str, Figures]]:
    """Part the rows of `limits` from the others; the former by precision."""
    return (
        {name: row for name, row in rows.items() if not name.startswith("limit ")},
        {name.removeprefix("limit "): row for name, row in rows.items() if name.startswith("limit ")},
    )


def thread_environment(threads: int) -> dict[str, str]:
    """Return what keeps a new process to so many threads, tokenizers included."""
    count = str(threads)
    parallel = "true" if threads > 1 else "false"
    return {"OMP_NUM_THREADS": count, "RAYON_NUM_THREADS": count, "TOKENIZERS_PARALLELISM": parallel}


class Worker:
    """A process of its own that answers lines of JSON with lines of JSON.

    Parameters
    ----------
    script : str
        File beside this one; it calls `serve`, or does the like.
    arguments : iterable of str
        Its arguments.
    threads : int
        Threads that it may use.
    path : Path, optional
        Directory whose packages come before those of this environment.
    """

    def __init__(self, script: str, arguments: Iterable[str], threads: int, path: Path | None = None) -> None:
        found = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
        python_path = os.pathsep.join(filter(None, [str(path.resolve()) if path else "", *found]))
        self._name = " ".join([script, *arguments])
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **thread_environment(threads), "PYTHONPATH": python_path},
        )

    def ask(self, question: Any) -> Any:
        """Send a question and wait for the answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the worker was started without pipes")
        try:
            stdin.write(json.dumps(question) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"{self._name} ended with status {self._process.wait()} before it answered")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.communicate()


@contextmanager
def workers(made: Callable[[str], Worker], names: Iterable[str]) -> Iterator[dict[str, Worker]]:
    """Start a worker for each name; end them all in the end."""
    started: dict[str, Worker] = {}
    try:
        for name in names:
            started[name] = made(name)
        yield started
    finally:
        for worker in started.values():
            worker.close()
