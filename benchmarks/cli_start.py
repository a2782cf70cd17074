"""What does it cost to start kctl?  Command lines as multiples of `python -c pass`, which no Python program can beat.

    python benchmarks/cli_start.py [--rounds 20] [--bootstrap-server HOST:PORT]

Runs the command lines in turn, so that a busy machine disturbs all of them alike, and takes medians.  With a bootstrap
server it also times a whole `kctl topics list`.  Prints a line per command line and one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BASELINE = "python -c pass"
BUDGETS = {"kctl --version": 3.0, "kctl --help": 4.0, "kctl topics create --help": 4.5, "kctl topics list": 6.0}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--bootstrap-server")
    options = parser.parse_args()
    kctl = [sys.executable, "-c", "import sys; from kctl.__main__ import main; sys.exit(main())"]
    lines = {
        BASELINE: [sys.executable, "-c", "pass"],
        "import typer": [sys.executable, "-c", "import typer"],
        "import asyncio": [sys.executable, "-c", "import asyncio"],
        "kctl --version": [*kctl, "--version"],
        "kctl --help": [*kctl, "--help"],
        "kctl topics create --help": [*kctl, "topics", "create", "--help"],
    }
    if options.bootstrap_server:
        lines["kctl topics list"] = [*kctl, "topics", "list", "--bootstrap-server", options.bootstrap_server]
    times_ms: dict[str, list[float]] = {name: [] for name in lines}
    with tempfile.TemporaryDirectory() as bytecode:
        # An installed kctl has compiled modules beside its sources; a checkout may not be allowed to write them.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONPATH": os.fspath(Path(__file__).parent.parent)}
        for command in lines.values():
            run_ms(command, environment)
        for _ in range(options.rounds):
            for name, command in lines.items():
                times_ms[name].append(run_ms(command, environment))
    baseline_ms = statistics.median(times_ms[BASELINE])
    results = []
    for name, samples in times_ms.items():
        median_ms = statistics.median(samples)
        ratio = median_ms / baseline_ms
        budget = BUDGETS.get(name)
        results.append({"line": name, "median_ms": round(median_ms, 1), "ratio": round(ratio, 2), "budget": budget})
        target = f"  (budget {budget}x)" if budget else ""
        print(f"{name:28} {median_ms:7.1f} ms  {ratio:5.2f}x{target}", file=sys.stderr)
    print(json.dumps({"benchmark": "cli_start", "unit": "ratio to python -c pass", "rounds": options.rounds,
                      "python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count(),
                      "results": results}))  # fmt: skip


def run_ms(command: list[str], environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return (time.perf_counter() - started) * 1000


if __name__ == "__main__":
    main()
