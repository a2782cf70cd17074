"""Measures the CPU time of kctl command lines in multiples of `python -c pass`.

    python -m benchmarks.cli_start [--runs 15] [--bootstrap-server HOST:PORT] [--verb "export --engine spark"]

Each command line runs with its output in a pipe and on a terminal.  The command lines run
in turn, so that a busy machine disturbs all of them alike, and the unit is the minimum of `python -c pass` in the same
environment; compare minima.  `kctl topics list` includes the round trips to our broker or to the one that is named.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pty
import resource
import shlex
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from benchmarks.harness.broker import kctl_broker
from benchmarks.harness.environment import command_environment
from benchmarks.harness.report import Figure, report

ROOT = Path(__file__).parent.parent
BASELINE = "python -c pass"
GOALS = {"kctl --version": "<= 3", "kctl --help": "<= 8", "--help": "<= 8", "kctl topics list": "<= 12"}
"""By the end of the command line."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=15)
    options.add_argument("--bootstrap-server", metavar="HOST:PORT", help="use this broker instead of ours")
    options.add_argument("--verb", action="append", metavar="'NOUN VERB'", help="verb whose help is measured")
    given = options.parse_args()
    verbs = given.verb or ["topics create", "export --engine spark"]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kctl-bench-")))
        bootstrap = given.bootstrap_server
        if bootstrap is None:
            bootstrap = stack.enter_context(kctl_broker(folder / "broker")).bootstrap
        times_ms = measure(command_lines(bootstrap, verbs), folder / "bytecode", given.runs)
    baseline = times_ms.pop((BASELINE, False))
    unit_ms = min(baseline)
    figures = [Figure(BASELINE, "ms", baseline)]
    for (name, on_terminal), samples in times_ms.items():
        goal = next((goal for end, goal in GOALS.items() if name.endswith(end)), "")
        place = " (terminal)" if on_terminal else ""
        figures.append(Figure(name + place, f"x {BASELINE}", [sample / unit_ms for sample in samples], goal))
    report("cli_start", figures, runs=given.runs)


def command_lines(bootstrap: str, verbs: list[str]) -> dict[tuple[str, bool], list[str]]:
    """Argument vectors by the reported name and whether the output is a terminal."""
    kctl = [sys.executable, "-c", "import sys; from kctl.__main__ import main; sys.exit(main())"]
    lines = {
        "kctl --version": [*kctl, "--version"],
        "kctl --help": [*kctl, "--help"],
        **{f"kctl {verb} --help": [*kctl, *shlex.split(verb), "--help"] for verb in verbs},
        "kctl topics list": [*kctl, "topics", "list", "--bootstrap-server", bootstrap],
    }
    return {
        (BASELINE, False): [sys.executable, "-c", "pass"],
        ("import typer", False): [sys.executable, "-c", "import typer"],
        ("import asyncio", False): [sys.executable, "-c", "import asyncio"],
        **{(name, on_terminal): line for name, line in lines.items() for on_terminal in (False, True)},
    }


def measure(lines: dict[tuple[str, bool], list[str]], bytecode: Path, runs: int) -> dict[tuple[str, bool], list[float]]:
    """CPU milliseconds of each run, after one that does not count."""
    # An installed kctl has compiled modules beside its sources; a checkout may not be allowed to write them.
    variables = command_environment(PYTHONPYCACHEPREFIX=str(bytecode), PYTHONPATH=str(ROOT), TERM="xterm-256color")
    times_ms: dict[tuple[str, bool], list[float]] = {key: [] for key in lines}
    for (_, on_terminal), command in lines.items():
        run_ms(command, variables, on_terminal=on_terminal)
    for _ in range(runs):
        for (name, on_terminal), command in lines.items():
            times_ms[name, on_terminal].append(run_ms(command, variables, on_terminal=on_terminal))
    return times_ms


def run_ms(command: list[str], environment: dict[str, str], *, on_terminal: bool) -> float:
    """CPU time of one run, which other load on the machine disturbs less than it does elapsed time."""
    before = _children_s()
    if on_terminal:
        _run_on_terminal(command, environment)
    else:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return (_children_s() - before) * 1000


def _run_on_terminal(command: list[str], environment: dict[str, str]) -> None:
    controller, terminal = pty.openpty()
    reader = threading.Thread(target=_discard, args=(controller,))
    reader.start()
    try:
        subprocess.run(command, check=True, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    finally:
        os.close(terminal)
        reader.join()
        os.close(controller)


def _discard(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # EIO: no process has the terminal open.
        while os.read(descriptor, 65536):
            pass


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
