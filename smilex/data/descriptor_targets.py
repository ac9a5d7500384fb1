"""Normalised descriptors of a corpus: computed once, and kept beside its molecules."""

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from itertools import starmap
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import rdkit
from joblib import cpu_count  # type: ignore[import-untyped]
from numpy.typing import NDArray
from scipy.special import ndtri

from smilex.data.cache import build_once, molecule_bar
from smilex.data.corpus import Corpus
from smilex.data.descriptors import DESCRIPTOR_NAMES, compute_descriptors
from smilex.data.workers import in_order
from smilex.errors import SmilexError

VERSION = 1
"""Raised when what is stored changes, so that older targets are computed anew."""

CHUNK = 100
"""Molecules that a worker takes at a time: about half a second of work."""

SMALL = 4 * CHUNK
"""Corpora up to this many molecules are worked on in this process: starting others would take longer."""

REFERENCE = 20_000
"""Molecules among which values are ranked, at most; more would make no difference that float16 can hold."""

BLOCK = 5_000
"""Molecules that are normalised at a time."""


def load_descriptor_targets(
    corpus: Corpus, *, num_workers: int | None = None, progress: bool = True
) -> datasets.Dataset:
    """Compute the normalised descriptors of a corpus, or take them from its cache.

    A value becomes the quantile of the normal distribution at its rank among the molecules of the corpus, those of
    equal value sharing their mean rank; from 20 000 molecules on, among that many drawn at random, with straight lines
    in between. So neither outliers nor skew remain, and a group that few molecules have counts little in a squared
    error. Memory does not grow with the corpus.

    Parameters
    ----------
    corpus : Corpus
        Clean molecules.
    num_workers : int, optional
        Processes; by default one per core. Small corpora are worked on in this process all the same.
    progress : bool
        Show a progress bar on stderr.

    Returns
    -------
    datasets.Dataset
        One row per molecule, memory-mapped: `targets`, float16 of the length of `DESCRIPTOR_NAMES`. NaN where a
        descriptor has no finite value for the molecule, or is the same for all.

    Raises
    ------
    SmilexError
        The cache cannot be written, is damaged, or a worker died.

    Examples
    --------
    >>> import tempfile
    >>> from smilex.data.corpus import load_corpus
    >>> corpus = load_corpus(["C", "CC", "CCC"], cache_dir=tempfile.mkdtemp(), progress=False)
    >>> targets = load_descriptor_targets(corpus, progress=False).with_format("numpy")["targets"][:]
    >>> weight, nitros = DESCRIPTOR_NAMES.index("MolWt"), DESCRIPTOR_NAMES.index("fr_nitro")
    >>> targets[:, [weight, nitros]].round(2)  # at 1/6, 1/2 and 5/6 of the distribution; and the same for all
    array([[-0.97,   nan],
           [ 0.  ,   nan],
           [ 0.97,   nan]], dtype=float32)
    """
    key = json.dumps([VERSION, rdkit.__version__, REFERENCE, DESCRIPTOR_NAMES])
    path = corpus.path / f"descriptors-{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}"
    build_once(path, partial(_build, corpus=corpus, num_workers=num_workers or cpu_count(), progress=progress))
    try:
        targets = datasets.Dataset.from_file(str(path / "targets.arrow"))
        if len(targets) != len(corpus.dataset):
            raise ValueError(f"{len(targets)} of {len(corpus.dataset)} rows are there")  # noqa: TRY301
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise SmilexError(f"{path} in the cache is damaged ({reason}): delete it and try again") from error
    return targets


def _build(folder: Path, corpus: Corpus, num_workers: int, *, progress: bool) -> None:
    """Compute all values first, then normalise them, block by block."""
    size = len(corpus.dataset)
    in_sample = np.zeros(size, dtype=bool)
    in_sample[np.random.default_rng(0).permutation(size)[:REFERENCE]] = True
    sample, done = [], 0
    raw = folder / "raw.float32"
    with raw.open("wb") as file, molecule_bar("computing descriptors", size, show=progress) as bar:
        for values in _compute(corpus, num_workers):
            file.write(values.tobytes())
            sample.append(values[in_sample[done : done + len(values)]])
            done += len(values)
            bar.update(bar.task_ids[0], completed=done)
    scales = [normal_scores(column) for column in np.concatenate(sample).T]
    schema = pa.schema([("targets", pa.list_(pa.float16(), len(scales)))])
    with raw.open("rb") as file, pa.ipc.new_stream(str(folder / "targets.arrow"), schema) as writer:
        while (flat := np.fromfile(file, np.float32, BLOCK * len(scales))).size:
            values = flat.reshape(-1, len(scales))
            normal = np.empty(values.shape, np.float16)
            for place, scale in enumerate(scales):
                normal[:, place] = np.interp(values[:, place], *scale)
            lists = pa.FixedSizeListArray.from_arrays(pa.array(normal.ravel()), len(scales))
            writer.write_batch(pa.record_batch([lists], schema=schema))
    raw.unlink()


def normal_scores(values: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the quantile of the normal distribution at the rank of each value, equal values sharing their mean rank.

    Parameters
    ----------
    values : float array, shape (n,)
        NaN where unknown, which has no rank.

    Returns
    -------
    points : float64 array, shape (m,)
        The different values, in order; a single NaN where there are less than two.
    scores : float64 array, shape (m,)
        What each becomes, Φ⁻¹((rank − 1/2) / n); NaN where there are less than two.

    Notes
    -----
    scikit-learn's QuantileTransformer puts all molecules that lack a group at −5.2, as it does with whatever is
    smallest, and so most of the squared error into those groups.

    Examples
    --------
    >>> points, scores = normal_scores(np.array([0.0, 0.0, 0.0, 5.0]))
    >>> points.tolist(), scores.round(2).tolist()  # at 3/8 and 7/8 of the distribution
    ([0.0, 5.0], [-0.32, 1.15])
    """
    points, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    if len(points) < 2:
        return np.array([np.nan]), np.array([np.nan])
    return points.astype(np.float64), ndtri((counts.cumsum() - counts / 2) / counts.sum())


def _compute(corpus: Corpus, num_workers: int) -> Iterator[NDArray[np.float32]]:
    """Compute the descriptors of all molecules, in order."""
    size = len(corpus.dataset)
    smiles = corpus.dataset.select_columns(["smiles"])
    calls = ((smiles[start : start + CHUNK]["smiles"],) for start in range(0, size, CHUNK))
    if size <= SMALL or num_workers == 1:
        yield from starmap(compute_descriptors, calls)
    else:
        yield from in_order(compute_descriptors, calls, num_workers)
