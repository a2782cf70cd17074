"""Measures `kctl groups lag` for 500 groups and for a group with 1,000 partitions: time and processor time.

    python -m benchmarks.group_lag [--runs 5] [--bootstrap-server HOST:PORT]

The groups are behind in all partitions, so that the records at their committed offsets are fetched.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.harness.broker import kctl_broker
from benchmarks.harness.environment import command_environment
from benchmarks.harness.report import Figure, report

GROUPS, SHARED_PARTITIONS, WIDE_PARTITIONS = 500, 4, 1000
RECORDS_OF_WIDE, RECORDS_OF_SHARED = 20, 5000
TIMEOUT_S = 120
LINES = {"500 groups": "groups lag", "1,000 partitions": "groups lag wide --by partition"}
GOALS = {"s": "< 2", "CPU s": "< 1"}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--bootstrap-server", metavar="HOST:PORT", help="use this broker instead of ours")
    given = options.parse_args()
    with contextlib.ExitStack() as stack:
        bootstrap = given.bootstrap_server
        if bootstrap is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kctl-bench-")))
            bootstrap = stack.enter_context(kctl_broker(folder / "broker")).bootstrap
        fill(bootstrap)
        figures = [figure for name, line in LINES.items() for figure in measure(name, line, bootstrap, given.runs)]
    report("group_lag", figures, runs=given.runs)


def fill(bootstrap: str) -> None:
    """Topics with records, and groups with commits before their ends."""
    settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
    topics = [NewTopic("wide", WIDE_PARTITIONS, 1), NewTopic("shared", SHARED_PARTITIONS, 1)]
    admin = AdminClient(settings)
    for created in admin.create_topics(topics).values():
        created.result(TIMEOUT_S)
    producer = Producer(settings | {"linger.ms": 20})
    for partition in range(WIDE_PARTITIONS):
        for _ in range(RECORDS_OF_WIDE):
            producer.produce("wide", b"x" * 200, partition=partition)
    for number in range(RECORDS_OF_SHARED * SHARED_PARTITIONS):
        producer.produce("shared", b"x" * 100, partition=number % SHARED_PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0
    commit(bootstrap, "wide", [TopicPartition("wide", number, 10) for number in range(WIDE_PARTITIONS)])
    for group in range(GROUPS):
        positions = [TopicPartition("shared", number, 100 + group) for number in range(SHARED_PARTITIONS)]
        commit(bootstrap, f"group-{group:03}", positions)


def commit(bootstrap: str, group: str, positions: list[TopicPartition]) -> None:
    """Commits without joining the group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def measure(name: str, line: str, bootstrap: str, runs: int) -> list[Figure]:
    """Elapsed time and processor time of the command; the first run, which may write bytecode, does not count."""
    command = [sys.executable, "-m", "kctl", *line.split(), "--bootstrap-server", bootstrap, "--quiet"]
    elapsed_s, used_s = [], []
    for _ in range(runs + 1):
        started_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=command_environment(NO_COLOR="1"))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        elapsed_s.append(time.monotonic() - started_s)
        used_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return [
        Figure(f"{name}, elapsed", "s", elapsed_s[1:], GOALS["s"]),
        Figure(f"{name}, processor", "CPU s", used_s[1:], GOALS["CPU s"]),
    ]


if __name__ == "__main__":
    main()
