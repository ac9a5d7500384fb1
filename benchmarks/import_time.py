"""How long `import smilex` takes beside what it loads later.

Each import runs in a new process, the packages in turn, and the medians and ranges over the repeats are written to
results/import_time.json and printed as a table.

    python benchmarks/import_time.py --repeats 7
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
STATEMENTS = {
    "nothing (the interpreter alone)": "pass",
    "import smilex": "import smilex",
    "smilex.SmilesTokenizer": "from smilex import SmilesTokenizer",
    "smilex.embed": "from smilex import embed",
    "import torch": "import torch",
    "import transformers": "import transformers",
}
TIMED = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"


def measure(statement: str) -> float:
    """Seconds that a statement takes in a new process."""
    command = [sys.executable, "-c", TIMED.format(statement)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    for statement in STATEMENTS.values():
        measure(statement)  # fills the disk cache
    seconds: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(arguments.repeats):
        for name, statement in STATEMENTS.items():
            seconds[name].append(measure(statement))
    rows = {
        name: {"median_s": statistics.median(values), "min_s": min(values), "max_s": max(values)}
        for name, values in seconds.items()
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "import_time.json").write_text(
        json.dumps({"repeats": arguments.repeats, "imports": rows}, indent=2) + "\n"
    )
    print("| import | median (s) | range (s) |\n|---|---|---|")
    for name, row in rows.items():
        print(f"| {name} | {row['median_s']:.3f} | {row['min_s']:.3f}–{row['max_s']:.3f} |")


if __name__ == "__main__":
    main()
