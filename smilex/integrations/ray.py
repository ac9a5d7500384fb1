"""Shards of vectors made by the workers of Ray, on this machine or a cluster.

The rows of the dataset are shards, not molecules. Ray Data does not number rows (`include_row_hash` is a hash of their
place), and its checkpoints skip single rows, by comparison with the keys of all finished ones. Here a worker is told
which rows to read and writes them itself; Ray hands out the work, and hands it out again when a worker dies.
"""

import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smilex.errors import SmilexError
from smilex.shards import EmbeddingJob, Shard, ShardMaker

try:
    import ray
    import ray.data
except ImportError as error:
    raise ImportError(f"the engine ray needs Ray Data ({error}): pip install 'smilex[ray]'", name="ray") from error

ATTEMPTS = 4
"""How many workers may die at one shard; Ray would give it out for ever."""

SECONDS_TO_CONNECT = 10
"""Time for a cluster to answer; Ray itself would try for minutes, and then end the process."""

OBJECT_STORE_BYTES = 128 * 2**20
"""Shared memory of a Ray on this machine: shards go from the workers to their files, and never through Ray."""


def make_on_ray(job: EmbeddingJob, shards: Sequence[Shard], address: str | None = None) -> Iterator[Shard]:
    """Make shards with the workers of Ray; yields each when it is there, in any order.

    Parameters
    ----------
    job : EmbeddingJob
        The job; its directories and its input must be where every worker finds them.
    shards : sequence of Shard
        What to make.
    address : str, optional
        Cluster, ``"HOST:PORT"`` or ``"auto"``. By default the Ray that this process is connected to, or else a new one
        on this machine, which ends with the work.

    Raises
    ------
    SmilexError
        If the cluster is not reached, workers die again and again at a shard, or as `ShardMaker` raises.
    """
    with ExitStack() as stack:
        _connect(address, stack)
        resource = "GPU" if ray.cluster_resources().get("GPU", 0) >= 1 else "CPU"
        workers = min(len(shards), max(1, int(ray.cluster_resources().get(resource, 1))))
        context = ray.data.DataContext.get_current().copy()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        stack.enter_context(ray.data.DataContext.current(context))
        made = ray.data.from_items([shard._asdict() for shard in shards], override_num_blocks=len(shards)).map_batches(
            _Worker,
            fn_constructor_args=(job,),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_cpus=1,
            num_gpus=1 if resource == "GPU" else 0,
        )
        try:
            for row in made.iter_rows():
                if row["failure"]:
                    raise SmilexError(row["failure"])
                yield Shard(row["number"], row["start"], row["stop"])
        except ray.exceptions.RayError as error:
            *_, reason = str(error).strip().splitlines() or [type(error).__name__]
            raise SmilexError(f"Ray gave up, finished shards are kept: {reason}") from error


class _Worker:
    """What each worker of Ray holds; a failure that the user can mend travels as text, free of Ray's tracebacks."""

    def __init__(self, job: EmbeddingJob) -> None:
        self._job = job

    @cached_property
    def _maker(self) -> ShardMaker:
        return ShardMaker(self._job)

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        shard = Shard(*(int(batch[name][0]) for name in Shard._fields))
        failure = ""
        try:
            self._attempt(shard)
        except SmilexError as error:
            failure = str(error)
        return {**batch, "failure": np.array([failure], dtype=object)}

    def _attempt(self, shard: Shard) -> None:
        path = self._job.path(shard)
        attempts = path.with_name(f".{path.name}.attempts")  # a file outlives its worker, and every worker sees it
        with attempts.open("a") as file:
            file.write("x")
            count = file.tell()
        if count > ATTEMPTS:
            raise SmilexError(
                f"{ATTEMPTS} workers died at rows {shard.start} to {shard.stop - 1}, as when memory runs out; finished "
                "shards are kept: look at these rows, or name another directory and fewer rows_per_shard"
            )
        self._maker.make(shard)
        attempts.unlink(missing_ok=True)


def _connect(address: str | None, stack: ExitStack) -> None:
    """Connect to Ray for as long as the stack is open, or use the connection that there is."""
    if ray.is_initialized():
        if address is not None:
            raise SmilexError("this process is connected to a Ray already: leave address out, or call ray.shutdown()")
        return
    settings: dict[str, Any] = {"address": address or "local", "log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        settings |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    else:
        _check_reachable(address)
    try:
        ray.init(**settings)
    except Exception as error:  # Ray raises plain ones too
        raise SmilexError(f"cannot connect to Ray at {address or 'local'}: {str(error).splitlines()[0]}") from error
    stack.callback(ray.shutdown)


def _check_reachable(address: str) -> None:
    """Knock at the port of a cluster."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    if not (colon and port.isdecimal()):
        raise SmilexError(f"address of a Ray cluster is HOST:PORT or 'auto', not {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_CONNECT).close()
    except (OSError, OverflowError) as error:
        raise SmilexError(f"no Ray cluster answers at {address}: {error}; start one with ray start --head") from error
