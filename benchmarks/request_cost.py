"""Measures what small requests cost a broker, in processor time and calls, beside another checkout of kctl.

    python -m benchmarks.request_cost [--runs 5] [--requests 40000] [--rows single,pipelined] [--beside FOLDER]
        [--functions 20]

The rows are those of `./dev bench --beside apache` about single requests.  With `--beside` both checkouts are measured
in turns, in changing order, because other load on the machine changes the times.  Calls of Python functions and of
built-in ones come from other brokers, which count them and are slower for it; `--functions` prints those that are
called most.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.beside.measuring import FULL, Row, Scale
from benchmarks.beside.rows import ROWS
from benchmarks.beside.sides import KCTL, PROPERTIES, Side
from benchmarks.harness import counted_calls
from benchmarks.harness.broker import kctl_broker
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject, pin

ROOT = Path(__file__).parent.parent
KEYS = ("single", "pipelined", "partitions-20", "partitions-200", "small-fetch")
COUNTED_REQUESTS = 2_000


@contextlib.contextmanager
def broker(checkout: Path, *, is_counted: bool = False) -> Iterator[Side]:
    """A running broker of the kctl in that folder."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kctl-bench-")))
        run_by = ["env", f"--chdir={checkout}", f"PYTHONPATH={checkout}"]
        if is_counted:
            run_by += [sys.executable, counted_calls.__file__, str(folder / "calls.json")]
        started = stack.enter_context(kctl_broker(folder / "data", properties=PROPERTIES, run_by=run_by))
        yield Side(KCTL, (Subject(started.bootstrap, started.pid),), folder, 0.0)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=5, help="runs of each measurement; medians are reported")
    options.add_argument("--requests", type=int, default=40_000, help="messages in each run")
    options.add_argument("--rows", default=",".join(KEYS), help="which rows")
    options.add_argument("--beside", type=Path, metavar="FOLDER", help="measure this checkout too")
    options.add_argument("--functions", type=int, default=0, metavar="N", help="print the N most called functions")
    options.add_argument("--counts-only", action="store_true", help="count calls, but take no times")
    options.add_argument("--no-pin", action="store_true", help="do not give broker and client a processor each")
    given = options.parse_args()
    rows = [row for row in ROWS if row.key in given.rows.split(",")]
    checkouts = {"": ROOT, **({"beside: ": given.beside.resolve()} if given.beside else {})}
    figures = [] if given.counts_only else times(checkouts, rows, given)
    for prefix, checkout in checkouts.items():
        with broker(checkout, is_counted=True) as side:
            for row in rows:
                figures += counts(prefix, side, row, given.functions)
    report("request_cost", figures, runs=given.runs, requests=given.requests)


def times(checkouts: dict[str, Path], rows: list[Row], given: argparse.Namespace) -> list[Figure]:
    """Processor time of each checkout per request; the first run warms up."""
    scale = Scale(FULL.megabytes, given.requests, FULL.latency_s, FULL.compacted_megabytes)
    samples: dict[tuple[str, str], list[float]] = {}
    with contextlib.ExitStack() as stack:
        sides = {prefix: stack.enter_context(broker(checkout)) for prefix, checkout in checkouts.items()}
        if not given.no_pin:
            pin(*(side.brokers[0].pid for side in sides.values()))
        for number, row in enumerate(rows):
            for run in range(given.runs + 1):
                for prefix in list(sides) if run % 2 else reversed(sides):
                    measured = row.measure(sides[prefix], scale, f"{number:01}{run:03}")
                    if run:
                        samples.setdefault((row.key, prefix), []).append(measured.values["CPU us"])
    return [Figure(f"{prefix}{key}", "us of CPU", values) for (key, prefix), values in samples.items()]


def counts(prefix: str, side: Side, row: Row, functions: int) -> list[Figure]:
    """Calls per request, with those of the creation and deletion of the topic."""
    partitions = int(row.key.partition("partitions-")[2] or 1)
    scale = Scale(FULL.megabytes, COUNTED_REQUESTS * partitions, FULL.latency_s, FULL.compacted_megabytes)
    path = side.logs / "calls.json"
    row.measure(side, scale, "warm")
    before = counted_calls.calls_of(side.brokers[0].pid, path)
    row.measure(side, scale, "meas")
    after = counted_calls.calls_of(side.brokers[0].pid, path)
    figures = []
    for kind, now, then in (
        ("Python", after.python, before.python),
        ("built-in", after.builtin, before.builtin),
    ):
        calls = now - then
        figures.append(Figure(f"{prefix}{row.key}, {kind} calls", "per request", [calls.total() / COUNTED_REQUESTS]))
        for name, count in calls.most_common(functions):
            print(f"  {count / COUNTED_REQUESTS:8.2f} {name}", file=sys.stderr)
    return figures


if __name__ == "__main__":
    main()
