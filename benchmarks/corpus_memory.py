"""Whether memory stays flat as a corpus grows.

Streams the first molecules of MOSES through `load_corpus` into an empty cache, one new process for each size, and
samples the resident memory of that process and all its workers. Needs Linux (/proc) and the files of the package
molsets: pip install --no-deps molsets==0.3.1

    python benchmarks/corpus_memory.py --sizes 100000 1000000
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]
import rdkit
from rich.console import Console
from rich.table import Table

import smilex
from smilex.data.sources import open_source

RESULT = Path(__file__).parent / "results" / "corpus_memory.json"

LOAD = """
import json, sys
from smilex.data.corpus import load_corpus
report = load_corpus(sys.argv[1], cache_dir=sys.argv[2], num_workers=int(sys.argv[3])).report
json.dump({"read": report.read, "kept": report.kept, "removed": report.removed}, sys.stdout)
"""


def main() -> None:
    """Measure each size and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000], help="molecules in the file")
    sizes = parser.parse_args().sizes
    table = Table("molecules", "kept", "seconds", "molecules/s", "peak RSS, all processes (MB)", "cache (MB)")
    runs = []
    for size in sizes:
        run = measure(size)
        runs.append(run)
        columns = ("read", "kept", "seconds", "molecules_per_second", "peak_rss_mb", "cache_mb")
        table.add_row(*(f"{run[column]:,.0f}" for column in columns))
    versions = {"smilex": smilex.__version__, "rdkit": rdkit.__version__, "python": sys.version.split()[0]}
    RESULT.parent.mkdir(exist_ok=True)
    result = {"corpus": "moses", "workers": joblib.cpu_count(), "versions": versions, "runs": runs}
    partial = RESULT.with_suffix(".tmp")
    partial.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    partial.replace(RESULT)
    Console().print(table)


def measure(size: int, corpus: str = "moses", workers: int | None = None) -> dict[str, Any]:
    """Clean a file of the first `size` molecules of a corpus in a new process; return what it took."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "molecules.smi"
        with source.open("w", encoding="utf-8") as file:
            file.writelines(f"{smiles}\n" for smiles in islice(open_source(corpus).rows(), size))
        started = time.perf_counter()
        command = [sys.executable, "-c", LOAD, str(source), f"{folder}/cache", str(workers or joblib.cpu_count())]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            peak = 0
            while process.poll() is None:
                peak = max(peak, sum(map(resident_bytes, tree(process.pid))))
                time.sleep(0.1)
            seconds = time.perf_counter() - started
            if process.returncode:
                sys.exit(f"load_corpus failed for {size} molecules")
            counts = json.loads(process.stdout.read()) if process.stdout else {}
        cache = sum(path.stat().st_size for path in Path(folder, "cache").rglob("*") if path.is_file())
    return counts | {
        "seconds": round(seconds, 1),
        "molecules_per_second": round(counts["read"] / seconds),
        "peak_rss_mb": round(peak / 1e6),
        "cache_mb": round(cache / 1e6, 1),
    }


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    children: list[str] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has just ended
            children += task.read_text(encoding="ascii").split()
    return [pid, *(descendant for child in children for descendant in tree(int(child)))]


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process, shared pages included."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:")), 0)


if __name__ == "__main__":
    main()
