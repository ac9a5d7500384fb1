"""Corpora of unlabelled molecules: cleaned, tokenised once, and kept in a cache on disk."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, starmap
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import rdkit
from joblib import cpu_count  # type: ignore[import-untyped]

from smilex.data.cache import build_once, molecule_bar
from smilex.data.cleaning import SCHEMA, Cleaned, CleaningReport, Settings, clean_chunk, shorten
from smilex.data.duplicates import SeenHashes
from smilex.data.readers import Row
from smilex.data.sources import Source, open_source
from smilex.data.workers import in_order
from smilex.errors import SmilexError
from smilex.tokenization import SmilesTokenizer

CACHE_VERSION = 1
"""Raised when cleaning or the layout of the cache changes, so that older entries are built anew."""

CHUNK = 2_000
"""Rows that a worker cleans at a time: about half a second of work."""

SMALL = 4 * CHUNK
"""Sources up to this many rows are cleaned in this process: starting others would take longer."""


@dataclass(frozen=True)
class Corpus:
    """Clean, tokenised molecules.

    Attributes
    ----------
    dataset : datasets.Dataset
        One row per molecule, memory-mapped: `smiles` (canonical), `input_ids` (uint16, with [CLS] and [SEP]) and
        `length` (int32, their number).
    report : CleaningReport
        What was removed, how much and why.
    fingerprint : str
        Hash of the content, the settings, the vocabulary and the versions of RDKit and of the cache.
    path : Path
        The directory of the cache that holds it.
    """

    dataset: datasets.Dataset
    report: CleaningReport
    fingerprint: str
    path: Path


def load_corpus(
    source: Any,
    *,
    smiles_column: str | None = None,
    neutralize: bool = False,
    max_length: int = 512,
    num_workers: int | None = None,
    cache_dir: str | Path | None = None,
    progress: bool = True,
) -> Corpus:
    """Read, clean and tokenise unlabelled molecules, or take them from the cache if that was done before.

    Each row is parsed, reduced to its largest fragment and written as canonical SMILES. Rows that are no molecule,
    repeat an earlier one or are too long are removed, and the report says how many and why. The order of the rest
    stays, whatever the number of workers. Memory does not grow with the source, except by eight bytes a molecule.

    Parameters
    ----------
    source : str, Path, datasets.Dataset or iterable of str
        A file (.smi, .txt, .csv, .tsv, .parquet, .sdf, each also .gz), a built-in name (``"nci5k"``, ``"moses"``),
        a dataset, or SMILES.
    smiles_column : str, optional
        The column with the SMILES, where it is not called `smiles` or the like.
    neutralize : bool
        Remove charges where that is possible.
    max_length : int
        Longest molecule to keep, in tokens with [CLS] and [SEP].
    num_workers : int, optional
        Processes; by default one per core. Small sources are cleaned in this process all the same.
    cache_dir : path, optional
        By default ``$SMILEX_CACHE``, or ``~/.cache/smilex``.
    progress : bool
        Show a progress bar on stderr.

    Returns
    -------
    Corpus

    Raises
    ------
    SmilexError
        There is no such source; no row of it is a molecule; or the cache cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> smiles = ["OCC", "CCO", "C1CC", "[Na+].[Cl-].c1ccccc1"]
    >>> corpus = load_corpus(smiles, cache_dir=tempfile.mkdtemp(), progress=False)
    >>> corpus.dataset["smiles"][:]
    ['CCO', 'c1ccccc1']
    >>> corpus.report.removed
    {'invalid SMILES': 1, 'duplicate': 1}
    """
    if num_workers is not None and num_workers < 1:
        raise SmilexError(f"num_workers is at least 1, not {num_workers}")
    opened = open_source(source, smiles_column)
    settings = Settings(neutralize, max_length, SmilesTokenizer().backend_tokenizer.to_str())
    key = json.dumps([CACHE_VERSION, rdkit.__version__, opened.digest, *settings])
    fingerprint = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    cache = Path(cache_dir or os.environ.get("SMILEX_CACHE") or "~/.cache/smilex").expanduser()
    path = cache / "corpora" / fingerprint
    build_once(path, lambda folder: _build(folder, opened, settings, num_workers or cpu_count(), progress=progress))
    return _open(path)


def _open(path: Path) -> Corpus:
    try:
        report = CleaningReport.from_dict(json.loads((path / "report.json").read_text(encoding="utf-8")))
        dataset = datasets.Dataset.from_file(str(path / "data.arrow"))
        if len(dataset) != report.kept:
            raise ValueError(f"{len(dataset)} of {report.kept} molecules are there")  # noqa: TRY301 (one message for all)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise SmilexError(f"{path} in the cache is damaged ({reason}): delete it and try again") from error
    return Corpus(dataset, report, path.name, path)


def _build(folder: Path, source: Source, settings: Settings, num_workers: int, *, progress: bool) -> None:
    report = CleaningReport()
    seen = SeenHashes()
    with (
        pa.OSFile(str(folder / "data.arrow"), "wb") as file,
        pa.ipc.new_stream(file, SCHEMA) as writer,
        molecule_bar("cleaning molecules", source.total, show=progress) as bar,
    ):
        for cleaned in _clean(source.rows(), settings, num_workers):
            writer.write_batch(_drop_duplicates(cleaned, seen))
            report.add(cleaned.report)
            bar.update(bar.task_ids[0], completed=report.read)
        bar.update(bar.task_ids[0], total=report.read)
    _require_molecules(report, source)
    (folder / "report.json").write_text(json.dumps(report.to_dict(), indent=1), encoding="utf-8")


def _clean(rows: Iterator[Row], settings: Settings, num_workers: int) -> Iterator[Cleaned]:
    first = list(islice(rows, SMALL + 1))
    calls = ((start, chunk, settings) for start, chunk in _chunks(chain(first, rows)))
    if len(first) <= SMALL or num_workers == 1:
        yield from starmap(clean_chunk, calls)
    else:
        yield from in_order(clean_chunk, calls, num_workers)


def _chunks(rows: Iterator[Row]) -> Iterator[tuple[int, list[Row]]]:
    start = 0
    while chunk := list(islice(rows, CHUNK)):
        yield start, chunk
        start += len(chunk)


def _drop_duplicates(cleaned: Cleaned, seen: SeenHashes) -> pa.RecordBatch:
    new = seen.add(cleaned.hashes)
    repeated = [row for row, is_new in zip(cleaned.originals, new, strict=True) if not is_new]
    if repeated:
        cleaned.report.remove("duplicate", repeated)
        cleaned.report.kept -= len(repeated)
    return cleaned.batch.filter(pa.array(new))


def _require_molecules(report: CleaningReport, source: Source) -> None:
    if report.kept:
        return
    if not report.read:
        raise SmilexError(f"{source.name} is empty: a corpus needs at least one molecule")
    examples = [(row, reason) for reason, rows in report.examples.items() for row in rows]
    shown = "; ".join(f"row {r.row}: {shorten(r.smiles)} ({reason}, {r.detail})" for r, reason in examples[:3])
    raise SmilexError(f"{source.name}: none of {report.read} rows is a molecule that can be used, for example {shown}")
