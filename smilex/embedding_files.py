"""Vectors of a file of molecules that is larger than memory, on one machine or many."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import track

from smilex import DEFAULT_ENCODER
from smilex.checks import count
from smilex.data.rows import check_errors, warn_invalid
from smilex.data.sources import BUILT_IN, open_source
from smilex.embedding import check_pooling
from smilex.errors import SmilexError
from smilex.files import STDIN, empty_input
from smilex.modeling.loading import find_encoder, load_config
from smilex.runs import own_directory, versions, write_json
from smilex.shards import MANIFEST, REPORT, EmbeddingJob, Shard, make_here, write_invalid

ROWS_PER_SHARD = 65_536
"""Rows of a shard: a file of 64 MB for vectors of width 256."""

Engine = Callable[[EmbeddingJob, Sequence[Shard]], Iterator[Shard]]


@dataclass(frozen=True)
class EmbeddedFile:
    """What `embed_file` has done.

    Attributes
    ----------
    directory : Path
        The shards, ``part-00000.parquet`` and so on; ``_invalid.csv``, which names the invalid rows; ``_report.json``.
    rows : int
        Rows of the input, and of all shards together.
    width : int
        Length of a vector.
    shards : int
        How many shards there are.
    resumed : int
        How many of them an earlier run had finished.
    invalid : int
        Rows without a molecule that can be used.
    """

    directory: Path
    rows: int
    width: int
    shards: int
    resumed: int
    invalid: int


def embed_file(
    source: str | Path,
    output_dir: str | Path,
    encoder: str | Path = DEFAULT_ENCODER,
    pooling: Literal["mean", "cls"] = "mean",
    *,
    canonical: bool = True,
    smiles_column: str | None = None,
    errors: Literal["report", "raise"] = "report",
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    rows_per_shard: int = ROWS_PER_SHARD,
    progress: bool = False,
) -> EmbeddedFile:
    """Encode the molecules of a file of any size as a directory of Parquet files.

    No more than a shard is in memory. The same call goes on where an earlier one ended, however it did: shards that are
    finished are kept. Both engines write the same shards, and each can finish what the other began.

    Parameters
    ----------
    source : str or Path
        A file (.smi, .txt, .csv, .tsv, .parquet, .sdf, each also .gz) or the name of a built-in corpus. It is hashed
        first, at about a second a GB, so that shards of different contents never mix; of a Parquet file, the rows of
        a shard are then read without those before it.
    output_dir : str or Path
        Directory for the shards. Each has the columns `row` (number of the row in the input, from 0), `smiles` (what
        stands there), `v0` … `v{d-1}` (float32, null where the molecule is invalid), `error` (what is wrong, or null).
        ``pandas.read_parquet(output_dir)`` reads them all, in order.
    encoder, pooling, canonical
        As for `smilex.embed`.
    smiles_column : str, optional
        The column with the SMILES, where it is not called `smiles` or the like.
    errors : {"report", "raise"}, default "report"
        What to do with an invalid molecule: a null vector, a line in ``_invalid.csv`` and one `InvalidMoleculeWarning`
        for all, or an error.
    engine : {"local", "ray"}, default "local"
        Who computes: this process, or the workers of Ray, one a GPU or, without GPUs, one a CPU (``pip install
        'smilex[ray]'``). On several machines, source, encoder and output_dir must lie in a file system that all share.
    address : str, optional
        Ray cluster to connect to, ``"HOST:PORT"`` or ``"auto"``; by default Ray starts on this machine.
    rows_per_shard : int, default 65536
        Rows in each shard but the last.
    progress : bool, default False
        Show a progress bar on stderr.

    Returns
    -------
    EmbeddedFile

    Raises
    ------
    SmilexError
        If the input, the encoder or a setting cannot be used; `output_dir` cannot be written, or belongs to another
        input, encoder or setting; Ray is not installed or not reached; or, with ``errors="raise"``, a row is invalid.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> from smilex.modeling import ExLMConfig, ExLMModel
    >>> folder = Path(tempfile.mkdtemp())
    >>> ExLMModel(ExLMConfig.from_preset("tiny")).save_pretrained(folder / "encoder")
    >>> pd.DataFrame({"smiles": ["CCO", "c1ccccc1", "CCN"]}).to_parquet(folder / "library.parquet")
    >>> done = embed_file(folder / "library.parquet", folder / "out", folder / "encoder", rows_per_shard=2)
    >>> done.rows, done.width, done.shards, done.resumed
    (3, 128, 2, 0)
    >>> pd.read_parquet(folder / "out")[["row", "smiles"]].values.tolist()
    [[0, 'CCO'], [1, 'c1ccccc1'], [2, 'CCN']]
    """
    check_pooling(pooling)
    check_errors(errors)
    rows_per_shard = count("rows_per_shard", rows_per_shard)
    make = _engine(engine, address)
    directory = find_encoder(encoder).resolve()
    width = load_config(directory).hidden_size
    molecules = open_source(_absolute(source), smiles_column)
    if next(molecules.molecules(), None) is None:
        raise empty_input(molecules.name)
    output = Path(output_dir).expanduser().resolve()
    job = EmbeddingJob(molecules, molecules.count(), directory, pooling, canonical, errors, rows_per_shard, output)
    with own_directory(output, job.manifest, resume=True, settings_name=MANIFEST):
        job.clear_leftovers()
        missing = job.missing()
        todo = track(
            make(job, missing) if missing else (),
            "embedding shards",
            total=len(missing),
            console=Console(stderr=True),
            disable=not progress,
        )
        for _ in todo:
            pass
        job.clear_leftovers()
        invalid, first = write_invalid(job)
        if invalid and errors == "raise":
            raise first[0].as_error()
        total = len(job.shards())
        result = EmbeddedFile(output, job.rows, width, total, total - len(missing), invalid)
        report = {name: value for name, value in dataclasses.asdict(result).items() if name != "directory"}
        write_json(output / REPORT, {**report, "settings": job.manifest, "versions": versions()})
    warn_invalid(first, job.rows, invalid)
    return result


def _absolute(source: str | Path) -> str:
    """Name a file so that workers in other directories find it."""
    if str(source) == STDIN:
        raise SmilexError("stdin cannot be read twice, as a directory of shards needs: save the molecules in a file")
    built_in = str(source) in BUILT_IN and not Path(source).exists()
    return str(source) if built_in else str(Path(source).expanduser().absolute())


def _engine(name: str, address: str | None) -> Engine:
    if name == "ray":
        try:
            from smilex.integrations.ray import make_on_ray
        except ImportError as error:
            raise SmilexError(str(error)) from error
        return lambda job, shards: make_on_ray(job, shards, address)
    if name != "local":
        raise SmilexError(f"engine is 'local' or 'ray', not {name!r}")
    if address is not None:
        raise SmilexError("address is that of a Ray cluster: set engine='ray' too")
    return make_here
