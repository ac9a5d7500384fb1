"""How fast smilex is beside its peers, and beside what the machine can do at most.

Seven questions, each of which can be asked alone: the limit of the machine, the tokenizer, a step of pretraining,
embedding, fine-tuning, the alignment of ExLM, and cleaning a corpus. Whatever is compared takes turns in one run, so
that a machine that is slower for a while slows all of it; medians over the rounds are shown with their ranges. A cell
is one question with one number of threads. Finished cells are not run again, see `cells.py`; one of another machine,
corpus or setting is.

Molecules are a fixed mix of the sources, in equal shares as far as they have them, of 30 to 150 tokens. RDKit brings
nci5k; moses needs pip install --no-deps molsets==0.3.1. Any files can be named instead. Fine-tuning reads BBBP and
needs chemprop; the peers of the tokenizer lie in a directory of their own, see `throughput_tokenizers.py`.

    pip install -e '.[benchmarks]'
    pip install --no-deps --target runs/peers -r benchmarks/throughput_peers.txt
    SMILEX_DATA=moleculenet python benchmarks/throughput.py --budget 60
    python benchmarks/throughput.py --only tokenizer step --threads 1
"""

import argparse
import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import throughput_alignment
import throughput_cleaning
import throughput_embedding
import throughput_finetuning
import throughput_tokenizers
import throughput_training
import torch
from cells import RESULTS, Board, Cell, Cells, Settings, run_cells
from throughput_corpus import Mixture, mix
from throughput_measure import QUICK, Figures, Size, limits, take_turns, thread_environment

from smilex.data.properties import load_properties
from smilex.runs import write_text

TITLES = {
    "limit": "Limit: product of two square matrices",
    "tokenizer": "Tokenizer",
    "step": "Pretraining step",
    "embedding": "Embedding",
    "finetuning": "Fine-tuning",
    "alignment": "Alignment",
    "corpus": "Corpus",
}
QUESTIONS = tuple(TITLES)
USED = {
    "limit": ("gemm",),
    "tokenizer": ("tokenized",),
    "step": ("gemm", "model", "trained"),
    "embedding": ("model", "embedded"),
    "finetuning": ("model", "epochs"),
    "alignment": ("model", "trained"),
    "corpus": ("cleaned", "loaded"),
}
"""What of the size each question depends on, beside the rounds."""

WITHOUT_CORPUS = ("limit", "finetuning")

COLUMNS = {
    "median": ("median", "{:,.4g}"),
    "range": ("range", "{}"),
    "smilex_is_faster": ("smilex is faster by", "{:.2f} ×"),
    "times_roberta_as_used": ("× RoBERTa as used", "{:.2f}"),
    "gflops": ("GFLOPS", "{:.1f}"),
    "limit_share": ("of the limit", "{:.0%}"),
    "forward_share": ("of the forward alone", "{:.0%}"),
    "step_share": ("of a step's time", "{:.1%}"),
    "molecules_per_second_and_core": ("a core", "{:,.4g}"),
    "peak_rss_mb": ("peak RSS (MB)", "{:,.0f}"),
}


class Key(NamedTuple):
    """Which cell; the seed is always 0."""

    question: str
    threads: int
    seed: int


def order(key: Key) -> tuple[int, int]:
    """Sort as the table does."""
    return QUESTIONS.index(key.question), key.threads


def processor() -> str:
    """Name the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


@lru_cache(maxsize=1)
def open_mixture(sources: tuple[str, ...], size: int, work_dir: Path) -> Mixture:
    """Make the corpus, once."""
    return mix(sources, size, work_dir)


class Benchmark:
    """The questions with what was asked for on the command line."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._chosen = chosen
        self._size: Size = QUICK if chosen.quick else Size()

    def mixture(self) -> Mixture:
        """Return the molecules."""
        return open_mixture(tuple(self._chosen.corpus), self._size.corpus, self._chosen.work_dir)

    def settings(self, key: Key) -> Settings:
        """Whatever the figures of a cell depend on."""
        size = asdict(self._size)
        settings = {name: size[name] for name in ("rounds", *USED[key.question])}
        settings |= {"threads": key.threads, "processor": processor()}
        if key.question not in WITHOUT_CORPUS:
            settings["corpus"] = self.mixture().fingerprint
        if key.question == "tokenizer":
            settings["peers"] = throughput_tokenizers.peer_packages(self._chosen.peers)
        if key.question == "finetuning":
            settings["fingerprint"] = load_properties(throughput_finetuning.DATASET).fingerprint
        if key.question == "corpus":
            settings["loaded_from"] = self._chosen.load_from
        return settings

    def make(self, key: Key) -> Cell:
        """Answer a question."""
        threads = torch.get_num_threads()
        variables = thread_environment(key.threads)
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        torch.set_num_threads(key.threads)
        try:
            with TemporaryDirectory(prefix="throughput-") as folder:
                figures = self._answer(key, Path(folder))
        finally:
            torch.set_num_threads(threads)
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        molecules = {} if key.question in WITHOUT_CORPUS else {"molecules": self.mixture().about}
        return {**figures, **molecules}

    def _answer(self, key: Key, folder: Path) -> Figures:
        size, threads, chosen = self._size, key.threads, self._chosen
        answers: dict[str, Callable[[], Figures]] = {
            "limit": lambda: {"unit": "GFLOPS", "rows": take_turns(limits(size.gemm), size.rounds)},
            "tokenizer": lambda: throughput_tokenizers.measure(self.mixture(), size, threads, chosen.peers),
            "step": lambda: throughput_training.measure(self.mixture(), size, folder),
            "embedding": lambda: throughput_embedding.measure(self.mixture(), size, threads, folder),
            "finetuning": lambda: throughput_finetuning.measure(size, folder),
            "alignment": lambda: throughput_alignment.measure(self.mixture(), size, folder),
            "corpus": lambda: throughput_cleaning.measure(self.mixture(), size, chosen.load_from),
        }
        return answers[key.question]()


def answerable(questions: Iterable[str], peers: Path) -> list[str]:
    """Leave out what cannot be answered here, and say why."""
    kept = []
    for question in sorted(questions, key=QUESTIONS.index):
        reason = throughput_finetuning.lacks() if question == "finetuning" else None
        if reason:
            print(f"without {question}: {reason}")
        else:
            kept.append(question)
        if question == "tokenizer" and not throughput_tokenizers.peer_packages(peers):
            print(f"tokenizer without peers: there are none in {peers}, see throughput_tokenizers.py")
    return kept


def report(cells: Cells) -> str:
    """Lay out a table for each question and number of threads."""
    text = ""
    for key in sorted(cells, key=order):
        cell = cells[key]
        threads = "1 thread" if key.threads == 1 else f"{key.threads} threads"
        text += f"## {TITLES[key.question]}, {threads} ({cell['unit']})\n\n{table(cell['rows'])}\n"
        others = {name: cell[name] for name in ("exlm_time_over_mlm_time", "batch", "molecules") if name in cell}
        text += "".join(f"{name}: {json.dumps(value)}\n\n" for name, value in others.items())
    return text + (
        "Medians over rounds in which the rows take turns, and the range of the rounds; the JSON file has each round. "
        "GFLOPS: matrix products and attention, padding included.\n"
    )


def table(rows: Mapping[str, Figures]) -> str:
    """Lay out the rows of a cell with those columns that they have."""
    columns = [name for name in COLUMNS if name == "range" or any(name in row for row in rows.values())]
    lines = [f"| | {' | '.join(COLUMNS[name][0] for name in columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, row in rows.items():
        shown: dict[str, Any] = {**row, "range": f"{row['min']:,.4g}–{row['max']:,.4g}"}
        texts = [COLUMNS[column][1].format(shown[column]) if column in shown else "–" for column in columns]
        lines.append(f"| {name} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=QUESTIONS, metavar="QUESTION")
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, cores}), help="by default 1, and all")
    parser.add_argument("--corpus", nargs="+", default=["nci5k", "moses"], help="files or built-in names, to be mixed")
    parser.add_argument("--load-from", default="moses", help="where the large files of the corpus question come from")
    parser.add_argument("--peers", type=Path, default=Path("runs/peers"), help="directory of the peers' packages")
    parser.add_argument("--quick", action="store_true", help="sizes that show nothing but that everything works")
    parser.add_argument("--budget", type=float, help="start no cell after this many minutes")
    parser.add_argument("--work-dir", type=Path, default=Path("runs/throughput"))
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory of throughput.json and throughput.md")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    chosen = parser.parse_args(arguments)
    if min(chosen.threads) < 1:
        parser.error(f"--threads must be at least 1, not {min(chosen.threads)}")
    return chosen


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing; write and print the table."""
    chosen = parse(arguments)
    board = Board(chosen.results / "throughput.json", chosen.work_dir, Key, order)
    if not chosen.report_only:
        benchmark = Benchmark(chosen)
        questions = answerable(chosen.only, chosen.peers)
        wanted = [Key(question, threads, 0) for question in questions for threads in chosen.threads]
        run_cells(wanted, benchmark.settings, benchmark.make, board, chosen.budget)
    text = report(board.cells())
    write_text(chosen.results / "throughput.md", text)
    print(text)


if __name__ == "__main__":
    main()
