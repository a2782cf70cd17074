"""Measures replication when a few of many partitions change, and when all of them do.

    python -m benchmarks.many_partitions [--runs 3] [--partitions 3000] [--beside FOLDER]

Three brokers with one topic that is replicated three times.  One record with acks=all goes to each partition, then the
brokers are idle, and then each of ten partitions gets one record after the other.  With `--beside` another checkout of
kctl is measured too, in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.beside.rows import REPLICATED_IN_FLIGHT
from benchmarks.beside.sides import Side
from benchmarks.harness.report import Figure, report
from benchmarks.replicated_requests import ROOT, cluster
from tests.peers.probe import wait_until

TIMEOUT_S = 600
IDLE_S = 10
TOPIC = "many"
FEW = range(10)
ROUNDS = 50


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3, help="runs of each measurement; medians are reported")
    options.add_argument("--partitions", type=int, default=3000)
    options.add_argument("--beside", type=Path, metavar="FOLDER", help="measure this checkout too")
    given = options.parse_args()
    checkouts = {"": ROOT, **({"beside: ": given.beside.resolve()} if given.beside else {})}
    samples: dict[tuple[str, str, str], list[float]] = {}
    with contextlib.ExitStack() as stack:
        sides = {
            prefix: stack.enter_context(cluster(checkout, REPLICATED_IN_FLIGHT)).side
            for prefix, checkout in checkouts.items()
        }
        stack.callback(_PRODUCERS.clear)
        for side in sides.values():
            create(side, given.partitions)
        for run in range(given.runs):
            for prefix in list(sides) if run % 2 else reversed(sides):
                for name, unit, value in measured(sides[prefix], given.partitions):
                    samples.setdefault((prefix, name, unit), []).append(value)
    figures = [Figure(f"{prefix}{name}", unit, values) for (prefix, name, unit), values in samples.items()]
    report("many_partitions", figures, runs=given.runs, partitions=given.partitions)


def create(side: Side, partitions: int) -> None:
    """The topic, with a leader of each partition."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions, 3)], operation_timeout=TIMEOUT_S)[TOPIC].result(TIMEOUT_S)

    def is_led() -> bool:
        found = admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.values()
        return len(found) == partitions and all(
            len(partition.isrs) == 3 and partition.leader >= 0 for partition in found
        )

    wait_until(is_led, what="leaders of all partitions", timeout_s=TIMEOUT_S)
    produce(side, range(partitions))


def measured(side: Side, partitions: int) -> list[tuple[str, str, float]]:
    """Seconds, and processor seconds of all brokers."""
    before_s, started = side.cpu_s(), time.perf_counter()
    produce(side, range(partitions))
    all_s, all_cpu_s = time.perf_counter() - started, side.cpu_s() - before_s
    time.sleep(1)
    before_s = side.cpu_s()
    time.sleep(IDLE_S)
    idle_cpu_s = side.cpu_s() - before_s
    before_s, started = side.cpu_s(), time.perf_counter()
    for _ in range(ROUNDS):
        for partition in FEW:
            produce(side, [partition])
    few_s, few_cpu_s = time.perf_counter() - started, side.cpu_s() - before_s
    records = ROUNDS * len(FEW)
    return [
        ("one record to each", "s", all_s),
        ("one record to each", "CPU s", all_cpu_s),
        ("idle", "% of a core", 100 * idle_cpu_s / IDLE_S),
        ("one record to one of ten", "ms", few_s / records * 1e3),
        ("one record to one of ten", "CPU ms", few_cpu_s / records * 1e3),
    ]


_PRODUCERS: dict[str, Producer] = {}


def produce(side: Side, partitions: Iterable[int]) -> None:
    """One record to each, acknowledged by all replicas."""
    producer = _PRODUCERS.get(side.bootstrap)
    if producer is None:
        settings = {"bootstrap.servers": side.bootstrap, "acks": "all", "linger.ms": 0, "message.timeout.ms": 300_000}
        producer = _PRODUCERS[side.bootstrap] = Producer(settings)
    for partition in partitions:
        producer.produce(TOPIC, bytes(100), partition=partition, on_delivery=_check)
    if producer.flush(TIMEOUT_S):
        raise SystemExit("not all records were acknowledged")


def _check(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        raise SystemExit(f"a record was not written: {error}")


if __name__ == "__main__":
    main()
