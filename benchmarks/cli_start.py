"""What does it cost to start kctl?  CPU time of command lines in multiples of `python -c pass`, which no program beats.

    python -m benchmarks.cli_start [--runs 20] [--bootstrap-server HOST:PORT]

The command lines run in turn, so that a busy machine disturbs all of them alike.  `kctl topics list` is a whole one,
round trips included, against our broker or the one that is named.  Two imports stand beside them for comparison.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness.report import Figure, report
from tests.peers.kctl_broker import kctl_broker

ROOT = Path(__file__).parent.parent
BASELINE = "python -c pass"
GOALS = {
    "kctl --version": "<= 3",
    "kctl --help": "<= 8",
    "kctl topics create --help": "<= 8",
    "kctl topics list": "<= 12",
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=20)
    options.add_argument("--bootstrap-server", metavar="HOST:PORT", help="ask this broker instead of ours")
    given = options.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kctl-bench-")))
        bootstrap = given.bootstrap_server
        if bootstrap is None:
            bootstrap = stack.enter_context(kctl_broker(folder / "broker")).bootstrap
        times_ms = measure(command_lines(bootstrap), folder / "bytecode", given.runs)
    baseline_ms = statistics.median(times_ms[BASELINE])
    figures = [Figure(BASELINE, "ms", times_ms.pop(BASELINE))]
    for name, samples in times_ms.items():
        figures.append(Figure(name, f"x {BASELINE}", [sample / baseline_ms for sample in samples], GOALS.get(name, "")))
    report("cli_start", figures, runs=given.runs)


def command_lines(bootstrap: str) -> dict[str, list[str]]:
    """What is run, by the name under which it is reported."""
    kctl = [sys.executable, "-c", "import sys; from kctl.__main__ import main; sys.exit(main())"]
    return {
        BASELINE: [sys.executable, "-c", "pass"],
        "import typer": [sys.executable, "-c", "import typer"],
        "import asyncio": [sys.executable, "-c", "import asyncio"],
        "kctl --version": [*kctl, "--version"],
        "kctl --help": [*kctl, "--help"],
        "kctl topics create --help": [*kctl, "topics", "create", "--help"],
        "kctl topics list": [*kctl, "topics", "list", "--bootstrap-server", bootstrap],
    }


def measure(lines: dict[str, list[str]], bytecode: Path, runs: int) -> dict[str, list[float]]:
    """CPU milliseconds of each run, after one that does not count."""
    # An installed kctl has compiled modules beside its sources; a checkout may not be allowed to write them.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(bytecode), "PYTHONPATH": str(ROOT)}
    times_ms: dict[str, list[float]] = {name: [] for name in lines}
    for command in lines.values():
        run_ms(command, environment)
    for _ in range(runs):
        for name, command in lines.items():
            times_ms[name].append(run_ms(command, environment))
    return times_ms


def run_ms(command: list[str], environment: dict[str, str]) -> float:
    """CPU time of one run, which other load on the machine disturbs less than it does elapsed time."""
    before = _children_s()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return (_children_s() - before) * 1000


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
