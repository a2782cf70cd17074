"""kctl beside Apache Kafka, in turns on the same machine, as one table.

    ./dev bench --beside apache [--apache 3.9.1 --apache 4.3.1] [--rows produce-1k,latency-idle] [--quick]

Every row is measured with each side in turn, in changing order, so that other load on the machine affects all.  Turns
before them warm up caches and compilers, until a JVM compiles next to nothing, and do not count.  The table has medians
and ranges, and shows where the client used a whole processor, so that the broker was not the limit.  Rows about three
brokers need versions with ZooKeeper.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import string
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.beside.measuring import FULL, QUICK, Row, Scale, Values
from benchmarks.beside.rows import ROWS
from benchmarks.beside.sides import GROWING_HEAP, KCTL, Side, has_zookeeper, one_broker, three_brokers
from benchmarks.beside.table import Sample, document, lines_of, markdown
from benchmarks.harness import librdkafka
from benchmarks.harness.report import commit, machine
from benchmarks.harness.subject import pin
from tests.peers import apache_kafka

LETTERS = string.ascii_lowercase
WARM_UPS_MAX = 8
COMPILATION_SHARE_MAX = 0.05


def main() -> None:
    options = argparse.ArgumentParser(
        prog="./dev bench --beside apache", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("peer", choices=["apache"], help="the other program")
    options.add_argument("--apache", action="append", metavar="VERSION", help="its versions; default: 3.9.1")
    options.add_argument("--rows", metavar="ROW,...", help=f"of {', '.join(row.key for row in ROWS)}; default: all")
    options.add_argument("--quick", action="store_true", help="a tenth of the load and one turn that counts")
    options.add_argument("--runs", type=int, help="turns that count; default: 3, with --quick 1")
    options.add_argument("--growing-heap", action="store_true", help="each version also without -Xms")
    options.add_argument("--no-pin", action="store_true", help="do not give brokers and client a processor each")
    options.add_argument(
        "--output", type=Path, default=Path("build/beside"), help="PREFIX.md and PREFIX.json; default: build/beside"
    )
    given = options.parse_args()
    if reason := apache_kafka.why_not():
        raise SystemExit(reason)
    rows = _selected(given.rows)
    others = [f"Apache {version}" for version in given.apache or [apache_kafka.LAST_WITH_ZOOKEEPER]]
    if given.growing_heap:
        others += [other + GROWING_HEAP for other in others]
    sides = [KCTL, *others]
    runs = given.runs or (1 if given.quick else 3)
    load = os.getloadavg()[0]
    samples = measure(rows, sides, QUICK if given.quick else FULL, runs=runs, is_pinned=not given.no_pin)
    lines = lines_of(samples)
    conditions = {
        **machine(),
        "commit": commit(),
        "client": librdkafka.client_name(),
        "runs": runs,
        "quick": given.quick,
        "pinned": not given.no_pin,
        "load before": round(load, 1),
        "load after": round(os.getloadavg()[0], 1),
    }
    table = markdown(lines, sides, conditions)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.with_suffix(".md").write_text(table, encoding="utf-8")
    text = json.dumps(document(lines, sides, conditions), indent=1) + "\n"
    given.output.with_suffix(".json").write_text(text, encoding="utf-8")
    print(table)


def measure(rows: Sequence[Row], sides: Sequence[str], scale: Scale, *, runs: int, is_pinned: bool) -> list[Sample]:
    """All rows; the single brokers have stopped before the clusters are started."""
    samples: list[Sample] = []
    for is_replicated in (False, True):
        chosen = [row for row in rows if row.is_replicated == is_replicated]
        able = [side for side in sides if not is_replicated or has_zookeeper(side)]
        if not chosen:
            continue
        with contextlib.ExitStack() as stack:
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="kctl-bench-", ignore_cleanup_errors=True))
            )
            start = three_brokers if is_replicated else one_broker
            running = [stack.enter_context(start(side, folder / f"side-{at}")) for at, side in enumerate(able)]
            if is_pinned:
                processors = os.sched_getaffinity(0)
                stack.callback(os.sched_setaffinity, 0, processors)
                pin(*(broker.pid for side in running for broker in side.brokers))
            samples += _in_turns(chosen, running, scale, runs)
    return samples


def _in_turns(rows: Sequence[Row], sides: Sequence[Side], scale: Scale, runs: int) -> Iterator[Sample]:
    names = _names()
    for row in rows:
        for side in reversed(sides):
            _warm_up(row, side, scale, names)
        for run in range(runs):
            for side in reversed(sides) if run % 2 else sides:
                values, share = row.measure(side, scale, next(names))
                _show(row, side, values, share)
                for unit, value in values.items():
                    yield Sample(row.name, unit, side.name, value, share)


def _warm_up(row: Row, side: Side, scale: Scale, names: Iterator[str]) -> None:
    """Until compilation takes next to nothing of the processor time of the brokers: a JVM compiles for minutes."""
    for _ in range(WARM_UPS_MAX):
        used_s, compiled_s = side.cpu_s(), side.compiler_cpu_s()
        values, share = row.measure(side, scale, next(names))
        used_s, compiled_s = side.cpu_s() - used_s, side.compiler_cpu_s() - compiled_s
        _show(row, side, values, share, note=f" (warming up, {compiled_s:.1f} of {used_s:.1f} CPU s compiles)")
        if compiled_s <= used_s * COMPILATION_SHARE_MAX:
            return


def _show(row: Row, side: Side, values: Values, share: float, *, note: str = "") -> None:
    shown = ", ".join(f"{value:,.4g} {unit}" for unit, value in values.items())
    print(f"{row.name}, {side.name}{note}: {shown}, client {share:.0%} of a processor", file=sys.stderr, flush=True)


def _names() -> Iterator[str]:
    """Names of four letters, each once."""
    for number in range(len(LETTERS) ** 4):
        yield "".join(LETTERS[number // len(LETTERS) ** place % len(LETTERS)] for place in range(4))


def _selected(keys: str | None) -> list[Row]:
    if keys is None:
        return list(ROWS)
    chosen = keys.split(",")
    unknown = sorted(set(chosen) - {row.key for row in ROWS})
    if unknown:
        raise SystemExit(f"--rows {','.join(unknown)}: there are {', '.join(row.key for row in ROWS)}")
    return [row for row in ROWS if row.key in chosen]


if __name__ == "__main__":
    main()
