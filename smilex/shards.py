"""Vectors of a library as a directory of shards: which rows each holds, which are finished, and how one is made.

A shard is a Parquet file with the rows `start` to `stop` of the input. It appears under its name when it is whole, and
says which job it belongs to. So whoever makes shards, in whatever order and however often it is killed, a shard that is
there is right, and one that is not there is still to be made.
"""

import csv
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from smilex.data.rows import SHOWN, InvalidRow, encode_rows
from smilex.data.sources import Source
from smilex.embedding import embed_rows
from smilex.errors import SmilexError
from smilex.files import row_text
from smilex.inference import to_default_device
from smilex.modeling import ExLMModel
from smilex.modeling.loading import load_model
from smilex.tokenization import SmilesTokenizer
from smilex.writing import whole_file

# Readers of a directory of Parquet files pass over names that begin with "_" or ".".
MANIFEST = "_manifest.json"
"""Says what the shards of a directory depend on."""

INVALID = "_invalid.csv"
"""Names each invalid row: its number, what stood there, and what is wrong."""

REPORT = "_report.json"
"""Written when all shards are there."""

_MARK = b"smilex_shard"


class Shard(NamedTuple):
    """Rows `start` to `stop` (exclusive) of the input, counted from 0, and the number of the shard."""

    number: int
    start: int
    stop: int


@dataclass(frozen=True)
class EmbeddingJob:
    """A library to embed, and everything that its shards depend on.

    Attributes
    ----------
    source : Source
        The molecules.
    rows : int
        How many there are.
    encoder : Path
        Directory of the encoder.
    pooling : {"mean", "cls"}
        What a vector is, as for `smilex.embed`.
    canonical : bool
        Whether canonical SMILES are encoded, as for `smilex.embed`.
    errors : {"report", "raise"}
        Whether an invalid molecule is reported or ends the job.
    rows_per_shard : int
        Rows in each shard but the last.
    directory : Path
        Where the shards go.

    Examples
    --------
    >>> from smilex.data.sources import open_source
    >>> source = open_source(["C", "CC", "CCC"])
    >>> job = EmbeddingJob(source, 3, Path("runs/encoder"), "mean", True, "report", 2, Path("out"))
    >>> job.shards()
    [Shard(number=0, start=0, stop=2), Shard(number=1, start=2, stop=3)]
    >>> job.path(job.shards()[1]).name
    'part-00001.parquet'
    """

    source: Source
    rows: int
    encoder: Path
    pooling: Literal["mean", "cls"]
    canonical: bool
    errors: Literal["report", "raise"]
    rows_per_shard: int
    directory: Path

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What the shards depend on; digests stand for contents, so that files may move or be copied."""
        return {
            "input_digest": self.source.digest,
            "rows": self.rows,
            "encoder_digest": _encoder_digest(self.encoder),
            "pooling": self.pooling,
            "canonical": self.canonical,
            "precision": "fp32",
            "rows_per_shard": self.rows_per_shard,
        }

    @cached_property
    def _digest(self) -> str:
        return hashlib.blake2b(json.dumps(self.manifest, sort_keys=True).encode(), digest_size=16).hexdigest()

    def mark(self, shard: Shard) -> str:
        """Return what the file of a shard carries to say which one it is, and of which job."""
        return f"{self._digest} {shard.start}"

    def shards(self) -> list[Shard]:
        """List the shards, in the order of their rows."""
        starts = range(0, self.rows, self.rows_per_shard)
        return [Shard(i, start, min(start + self.rows_per_shard, self.rows)) for i, start in enumerate(starts)]

    def path(self, shard: Shard) -> Path:
        """Return the file of a shard; the order of the names is that of the rows."""
        digits = max(5, len(str(self.rows // self.rows_per_shard)))
        return self.directory / f"part-{shard.number:0{digits}}.parquet"

    def is_finished(self, shard: Shard) -> bool:
        """Whether the file of a shard is there, whole, and of this job."""
        try:
            metadata = pq.read_metadata(self.path(shard))
        except (OSError, pa.ArrowException):  # not there, cut off, or no Parquet
            return False
        found = (metadata.metadata or {}).get(_MARK)
        return metadata.num_rows == shard.stop - shard.start and found == self.mark(shard).encode()

    def missing(self) -> list[Shard]:
        """List the shards that are still to be made."""
        return [shard for shard in self.shards() if not self.is_finished(shard)]

    def clear_leftovers(self) -> None:
        """Remove what workers that were killed had begun to write."""
        for path in self.directory.glob(".*part-*"):
            path.unlink(missing_ok=True)


class ShardMaker:
    """Makes shards of a job: it loads the encoder once and reads the input forwards.

    Parameters
    ----------
    job : EmbeddingJob
        The job.

    Raises
    ------
    SmilexError
        If the encoder cannot be loaded.
    """

    def __init__(self, job: EmbeddingJob) -> None:
        self._job = job
        self._model = to_default_device(load_model(ExLMModel, job.encoder))
        self._tokenizer = SmilesTokenizer()
        self._rows = job.source.molecules()
        self._next = 0

    def make(self, shard: Shard) -> None:
        """Encode the rows of a shard and write its file, unless it is there already.

        Raises
        ------
        SmilexError
            If the input has changed, the file cannot be written, or, with ``errors="raise"``, a row is invalid.
        """
        if self._job.is_finished(shard):  # after a failure an engine may give out a shard twice
            return
        smiles = self._read(shard)
        rows = encode_rows(
            smiles,
            self._tokenizer,
            max_length=self._model.config.max_position_embeddings,
            canonical=self._job.canonical,
        )
        invalid = [row._replace(index=shard.start + row.index) for row in rows.invalid]
        if invalid and self._job.errors == "raise":
            raise invalid[0].as_error()
        vectors = embed_rows(self._model, rows.input_ids, self._job.pooling)
        table = _table(shard, smiles, vectors, invalid).replace_schema_metadata({_MARK: self._job.mark(shard)})
        with whole_file(self._job.path(shard)) as partial:
            pq.write_table(table, partial, use_dictionary=False)  # hardly any value occurs twice

    def _read(self, shard: Shard) -> list[str]:
        source = self._job.source
        if shard.start < self._next or (shard.start > self._next and source.rows_from is not None):
            self._rows, self._next = source.molecules(shard.start), shard.start
        rows = islice(self._rows, shard.start - self._next, shard.stop - self._next)
        smiles = [row_text(row) for row in rows]
        self._next = shard.stop
        if len(smiles) != shard.stop - shard.start:
            raise SmilexError(f"{source.name} has fewer rows than at the start: leave it as it is until all is done")
        return smiles


def make_here(job: EmbeddingJob, shards: Sequence[Shard]) -> Iterator[Shard]:
    """Make shards in this process, one after the other; yields each when it is there."""
    maker = ShardMaker(job)
    for shard in shards:
        maker.make(shard)
        yield shard


def write_invalid(job: EmbeddingJob) -> tuple[int, list[InvalidRow]]:
    """Write the file that names the invalid rows of all shards.

    Returns
    -------
    count : int
        How many rows are invalid.
    first : list of InvalidRow
        The first few of them.
    """
    count, first = 0, []
    with whole_file(job.directory / INVALID) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["row", "smiles", "error"])
        for row in _invalid_rows(job):
            lines.writerow(row)
            count += 1
            if count <= SHOWN:
                first.append(row)
    return count, first


def _invalid_rows(job: EmbeddingJob) -> Iterator[InvalidRow]:
    for shard in job.shards():
        path = job.path(shard)
        errors = pq.read_table(path, columns=["error"])["error"]
        if errors.null_count == len(errors):  # the usual case, without a look at the large columns
            continue
        rows = pq.read_table(path, columns=["row", "smiles", "error"]).filter(pc.is_valid(errors))
        yield from (InvalidRow(*row.values()) for row in rows.to_pylist())


def _table(shard: Shard, smiles: list[str], vectors: NDArray[np.float32], invalid: list[InvalidRow]) -> pa.Table:
    """Return a table with the columns row, smiles, v0 … v{d-1} and error; of an invalid row the vector is null."""
    errors: list[str | None] = [None] * len(smiles)
    for row in invalid:
        errors[row.index - shard.start] = row.reason
    columns = {
        "row": pa.array(np.arange(shard.start, shard.stop, dtype=np.int64)),
        "smiles": pa.array(smiles, pa.string()),
        **{f"v{i}": pa.array(column, from_pandas=True) for i, column in enumerate(np.ascontiguousarray(vectors.T))},
        "error": pa.array(errors, pa.string()),
    }
    return pa.table(columns)


def _encoder_digest(directory: Path) -> str:
    """Hash the files that make the vectors."""
    digest = hashlib.blake2b(digest_size=16)
    for name in ("config.json", "model.safetensors"):
        try:
            content = (directory / name).read_bytes()
        except OSError as error:
            raise SmilexError(f"cannot read {directory / name}: {error.strerror}") from error
        digest.update(content)
    return digest.hexdigest()
