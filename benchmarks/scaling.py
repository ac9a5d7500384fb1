"""What libraries of 100 million and of 10 billion molecules cost to clean, to pretrain on and to embed.

What a core does in a second is measured: by `throughput.py`, whose results are read, and here, where it does not ask
(making batches; turning SMILES into ids; operations of a molecule). What other machines have is assumed, see
`MACHINES` and `SUSTAINED_TFLOPS`. A task runs as fast as its slowest part. A simulation of the parts, which hand each
other batches through queues of a few places and take times of exponential distribution, checks that claim: its rate is
shown as a share of the slowest part's.

    pip install simpy
    python benchmarks/scaling.py
"""

import argparse
import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import simpy
import torch
from cells import RESULTS
from throughput_corpus import Mixture
from throughput_measure import Size
from throughput_training import floating_point_operations, training_data

from smilex.data.corpus import load_corpus
from smilex.data.rows import EncodedRows, encode_rows
from smilex.embedding import embed_rows
from smilex.runs import versions, write_json, write_text
from smilex.tokenization import SmilesTokenizer

SUSTAINED_TFLOPS = 100.0
"""Of a GPU in bfloat16: a tenth of an H100's peak, as layers of 256 to 1024 are narrow. Assumed, not measured."""

BATCH_TOKENS = 65_536
"""Tokens of a batch of a GPU."""

SIZES = {"100 million": 10**8, "10 billion": 10**10}

QUEUE = 2
"""Batches that are ready ahead of time, for each that makes them: the default of torch's data loader."""


@dataclass(frozen=True)
class Machine:
    """One computer or several.

    Attributes
    ----------
    cores, gpus, nodes : int
        Cores and GPUs of a node; how many nodes.
    disk, network : float
        GB/s that a node writes, and at which GPUs exchange gradients; None for a single one.
    """

    cores: int
    gpus: int = 0
    nodes: int = 1
    disk: float = 2.0
    network: float | None = None


MACHINES = {
    "2 cores": Machine(2, disk=0.5),
    "64 cores": Machine(64),
    "16 cores, 1 GPU": Machine(16, 1),
    "128 cores, 8 GPUs": Machine(128, 8, disk=5.0, network=400.0),
    "8 × (128 cores, 8 GPUs)": Machine(128, 8, 8, disk=5.0, network=50.0),
}


@dataclass(frozen=True)
class Rates:
    """What a core does in a second, and what a molecule takes.

    Attributes
    ----------
    cleaned, encoded, batched, trained, embedded : float
        Molecules that a core cleans and tokenises; turns from SMILES into ids; puts into batches of ExLM; trains ExLM
        on; encodes, given the ids.
    training_gflop, forward_gflop : float
        10⁹ operations of a molecule.
    molecules_per_batch : float
        In a batch of a GPU.
    gradient_bytes, corpus_bytes, vector_bytes : float
        Of a model's gradients; of a molecule in the cache; of its vector.
    """

    cleaned: float
    encoded: float
    batched: float
    trained: float
    embedded: float
    training_gflop: float
    forward_gflop: float
    molecules_per_batch: float
    gradient_bytes: float
    corpus_bytes: float
    vector_bytes: float


def _seconds(function: Callable[[], object], repeats: int = 3) -> float:
    """Return the least of some times that a function takes."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def measured(throughput: Mapping[str, Any], molecules: int) -> Rates:
    """Take what `throughput.py` found on one thread, and measure the rest on nci5k."""
    rows = {cell["question"]: cell["rows"] for cell in throughput["cells"] if cell["threads"] == 1}
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        corpus = load_corpus("nci5k", cache_dir=folder, progress=False)
        smiles = corpus.dataset["smiles"][:molecules]
        data = training_data(Mixture(Path(), smiles, {}, ""), Size(trained=molecules), "exlm", Path(folder))
    network = data.objective.model_class(data.objective.config)

    def encode() -> EncodedRows:
        return encode_rows(smiles, SmilesTokenizer(), max_length=network.config.max_position_embeddings)

    ids = encode().input_ids
    steps = range(data.batches.per_epoch)
    batches = [data[step] for step in steps]
    trained = sum(len(batch["input_ids"]) for batch in batches)

    def train() -> None:
        for batch in batches:
            data.objective.losses(network, batch)["loss"].backward()

    return Rates(
        cleaned=rows["corpus"]["clean and tokenise, one core"]["median"],
        encoded=len(smiles) / _seconds(encode),
        batched=trained / _seconds(lambda: [data[step] for step in steps]),
        trained=rows["step"]["ExLM fp32"]["median"],
        embedded=rows["embedding"]["the encoder's forward alone"]["median"],
        training_gflop=floating_point_operations(train) / trained / 1e9,
        forward_gflop=floating_point_operations(lambda: embed_rows(network.exlm, ids, "mean")) / len(ids) / 1e9,
        molecules_per_batch=BATCH_TOKENS / float(np.mean([len(row) for row in ids])),
        gradient_bytes=4 * network.num_parameters(),
        corpus_bytes=corpus.dataset.data.nbytes / len(corpus.dataset),
        vector_bytes=4 * network.config.hidden_size,
    )


def clean(rates: Rates, machine: Machine) -> dict[str, float]:
    """Molecules a second of each part: the cores of one node, and its disk."""
    return {"cores": machine.cores * rates.cleaned, "disk": machine.disk * 1e9 / rates.corpus_bytes}


def pretrain(rates: Rates, machine: Machine) -> dict[str, float]:
    """Molecules a second of each part, for one pass: cores make batches; GPUs, or the cores too, train on them."""
    cores = machine.nodes * machine.cores
    if not machine.gpus:
        return {"cores": cores / (1 / rates.batched + 1 / rates.trained)}
    gpus = machine.nodes * machine.gpus
    step = rates.molecules_per_batch * rates.training_gflop / (SUSTAINED_TFLOPS * 1e3)
    # A ring sends and receives the gradients about twice; within a node if there is no other.
    exchange = 2 * (gpus - 1) / gpus * rates.gradient_bytes / (machine.network * 1e9) if machine.network else 0.0
    return {"cores": cores * rates.batched, "GPUs": gpus * rates.molecules_per_batch / (step + exchange)}


def embed(rates: Rates, machine: Machine) -> dict[str, float]:
    """Molecules a second of each part: cores read SMILES; GPUs, or the cores too, encode; disks take the vectors."""
    cores = machine.nodes * machine.cores
    disk = machine.nodes * machine.disk * 1e9 / rates.vector_bytes
    if not machine.gpus:
        return {"cores": cores / (1 / rates.encoded + 1 / rates.embedded), "disk": disk}
    gpus = machine.nodes * machine.gpus * SUSTAINED_TFLOPS * 1e3 / rates.forward_gflop
    return {"cores": cores * rates.encoded, "GPUs": gpus, "disk": disk}


TASKS = {"clean": clean, "pretrain": pretrain, "embed": embed}


def workers(task: str, machine: Machine) -> dict[str, int]:
    """How many share the work of each part; only one node cleans."""
    nodes = 1 if task == "clean" else machine.nodes
    return {"cores": nodes * machine.cores, "GPUs": nodes * machine.gpus, "disk": nodes}


def simulate(parts: Mapping[str, float], shares: Mapping[str, int], batch: float, batches: int, seed: int = 0) -> float:
    """Let batches pass through the parts of a task, one after the other.

    Parameters
    ----------
    parts : mapping of str to float
        Molecules a second of each part as a whole.
    shares : mapping of str to int
        Workers of each part; each does its share of the rate and takes one batch at a time.
    batch : float
        Molecules of a batch.
    batches : int
        How many pass.
    seed : int
        Of the times, which have an exponential distribution.

    Returns
    -------
    float
        Molecules a second.
    """
    rng = np.random.default_rng(seed)
    environment = simpy.Environment()
    names = list(parts)
    source, finished = simpy.Store(environment), simpy.Store(environment)
    source.items = list(range(batches))
    queues = [simpy.Store(environment, capacity=QUEUE * shares[name]) for name in names[:-1]]
    ways = dict(zip(names, pairwise([source, *queues, finished]), strict=True))
    done = environment.event()

    def work(name: str) -> Generator[simpy.Event, Any, None]:
        take, give = ways[name]
        mean = batch * shares[name] / parts[name]
        while True:
            item = yield take.get()
            yield environment.timeout(rng.exponential(mean))
            yield give.put(item)
            if len(finished.items) == batches and not done.triggered:
                done.succeed()

    for name in names:
        for _ in range(shares[name]):
            environment.process(work(name))
    environment.run(until=done)
    return batches * batch / environment.now


def figures(rates: Rates, batches: int) -> list[dict[str, Any]]:
    """Give the rate of each task on each machine, its slowest part, and the hours for each size."""
    rows = []
    for task, of in TASKS.items():
        for name, machine in MACHINES.items():
            parts = of(rates, machine)
            slowest = min(parts, key=parts.__getitem__)
            shares = workers(task, machine)
            rate = simulate(parts, shares, rates.molecules_per_batch, batches * max(shares.values()))
            rows.append(
                {
                    "task": task,
                    "machine": name,
                    "parts": parts,
                    "slowest": slowest,
                    "simulated_share": rate / parts[slowest],
                    "hours": {size: molecules / parts[slowest] / 3600 for size, molecules in SIZES.items()},
                }
            )
    return rows


def duration(hours: float) -> str:
    """Write hours in the unit that suits them."""
    for unit, length in (("years", 365.25 * 24), ("days", 24.0), ("hours", 1.0)):
        if hours >= 2 * length:
            return f"{hours / length:.3g} {unit}"
    return f"{hours * 60:.3g} minutes"


def round_number(value: float) -> str:
    """Write two digits of a number, without an exponent."""
    return f"{float(f'{value:.2g}'):,.10g}"


def report(rows: Sequence[Mapping[str, Any]], rates: Rates) -> str:
    """Lay out the table, and what the sizes take of disk and memory."""
    text = f"| | machine | molecules/s | slowest part | simulated | {' | '.join(SIZES)} |\n" + "|---" * 7 + "|\n"
    for row in rows:
        hours = " | ".join(duration(value) for value in row["hours"].values())
        rate = row["parts"][row["slowest"]]
        text += f"| {row['task']} | {row['machine']} | {round_number(rate)} | {row['slowest']} | "
        text += f"{row['simulated_share']:.0%} | {hours} |\n"
    text += f"\n| | {' | '.join(SIZES)} |\n" + "|---" * 3 + "|\n"
    sizes = {
        "corpus on disk": rates.corpus_bytes,
        "vectors on disk": rates.vector_bytes,
        "memory of cleaning, to find duplicates": 8,
        "memory of each training process, for lengths": 8,
    }
    for name, size in sizes.items():
        text += f"| {name} | {' | '.join(f'{round_number(size * count / 1e9)} GB' for count in SIZES.values())} |\n"
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, calculate, simulate; write and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--throughput", type=Path, default=RESULTS / "throughput.json")
    parser.add_argument("--molecules", type=int, default=2_000, help="of nci5k, that are measured")
    parser.add_argument("--batches", type=int, default=50, help="that each worker of a part takes in the simulation")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory of scaling.json and scaling.md")
    chosen = parser.parse_args(arguments)
    rates = measured(json.loads(chosen.throughput.read_text(encoding="utf-8")), chosen.molecules)
    rows = figures(rates, chosen.batches)
    assumed = {"sustained_tflops": SUSTAINED_TFLOPS, "machines": {name: asdict(m) for name, m in MACHINES.items()}}
    content = {"rates": asdict(rates), "assumed": assumed, "rows": rows, "versions": versions()}
    write_json(chosen.results / "scaling.json", content)
    text = report(rows, rates)
    write_text(chosen.results / "scaling.md", text)
    print(text)


if __name__ == "__main__":
    main()
