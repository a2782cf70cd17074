"""Measures what metrics cost a broker, and a scrape of 5,000 partitions, also with their lag.

    python -m benchmarks.metrics_cost [--runs 100] [--partitions 5000]

Recording is switched on and off in one broker (benchmarks/harness/turns.py), for requests with 1 MB and, as the worst
case, for small ones that arrive together.
A scrape is measured from the request to its last byte; how long the event loop was busy at a time is read from the
broker's own histogram.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.harness import librdkafka
from benchmarks.harness.broker import kctl_broker
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject, pin
from benchmarks.harness.turns import costs, workloads
from tests.peers import probe

MANY = "many"
SCRAPES, SCRAPES_OF_LAG = 10, 60
"""The lag of groups is read again every METRICS_LAG_CACHE_MS or later: more scrapes include several collections."""
PAUSE_S = 1
SWITCHED = (sys.executable, "-m", "benchmarks.harness.switched_broker")
REQUESTS = re.compile(
    r'kafka_network_requestmetrics_requests_total\{request="(?:Produce|FetchConsumer)",.*\} ([0-9.]+)'
)
BUCKET = re.compile(r'kctl_event_loop_busy_seconds_bucket\{le="([^"]+)"\} ([0-9.]+)')


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=100)
    options.add_argument("--partitions", type=int, default=5000)
    given = options.parse_args()
    port = probe.free_port()
    with (
        tempfile.TemporaryDirectory(prefix="kctl-bench-") as folder,
        kctl_broker(Path(folder) / "data", properties={"metrics.port": str(port)}, run_by=SWITCHED) as broker,
    ):
        pin(broker.pid)
        subject = Subject(broker.bootstrap, broker.pid)
        figures = [*metrics_costs(subject, port, runs=given.runs), *scrapes(subject, port, partitions=given.partitions)]
    report("metrics_cost", figures, client=librdkafka.client_name(), runs=given.runs)


def metrics_costs(broker: Subject, port: int, *, runs: int) -> list[Figure]:
    """The costs; all turns with metrics must have been recorded, and no others."""
    before = recorded(port)
    figures = costs(broker, signal.SIGRTMIN, "metrics", runs=runs, goal="< 3")
    expected = sum((runs + 1) * count for _, count in workloads().values())
    assert recorded(port) - before == expected, "a turn was recorded only in part"
    return figures


def recorded(port: int) -> int:
    """The Produce and Fetch requests that were recorded."""
    return int(sum(float(count) for count in REQUESTS.findall(scrape(port))))


def scrapes(broker: Subject, port: int, *, partitions: int) -> list[Figure]:
    """The time of scrapes with so many partitions, without and with a group that is behind in all of them."""
    librdkafka.create_topic(broker.bootstrap, MANY, partitions=partitions)
    await_series(port, "kafka_log_log_size", partitions)
    without = scrapes_now(f"scrape of {partitions} partitions", port, SCRAPES)
    fill_and_commit(broker.bootstrap, partitions)
    await_series(port, "kafka_consumergroup_lag", partitions)
    return [*without, *scrapes_now(f"scrape of {partitions} partitions and their lag", port, SCRAPES_OF_LAG)]


def await_series(port: int, name: str, count: int) -> None:
    """Waits until scrapes have so many series of this name."""
    while len(re.findall(rf"^{name}\{{", scrape(port), re.MULTILINE)) < count:
        time.sleep(PAUSE_S)


def fill_and_commit(bootstrap: str, partitions: int) -> None:
    """Two records in each partition, and a group that has read the first."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for partition in range(partitions):
        for _ in range(2):
            producer.produce(MANY, b"x" * 100, partition=partition)
    assert producer.flush(librdkafka.TIMEOUT_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "behind", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(MANY, number, 1) for number in range(partitions)], asynchronous=False)
    consumer.close()


def scrapes_now(what: str, port: int, count: int) -> list[Figure]:
    """The time of scrapes, one every PAUSE_S, and the longest iterations of the event loop meanwhile."""
    text = scrape(port)
    before = buckets(text)
    took_ms = []
    for _ in range(count):
        time.sleep(PAUSE_S)
        began_s = time.perf_counter()
        text = scrape(port)
        took_ms.append((time.perf_counter() - began_s) * 1000)
    after = buckets(text)
    total = after["+Inf"] - before["+Inf"]
    above = {bound: total - (after[bound] - before[bound]) for bound in ("0.005", "0.01", "0.02")}
    return [
        Figure(what, "ms", took_ms, "< 300"),
        Figure("its longest", "ms", [max(took_ms)], "< 300"),
        Figure("its size", "MB", [len(text) / 1e6]),
        *(
            Figure(f"iterations above {bound} s in {count} scrapes", "of " + str(int(total)), [n])
            for bound, n in above.items()
        ),
    ]


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        body: bytes = response.read()
    return body.decode()


def buckets(text: str) -> dict[str, float]:
    return {bound: float(count) for bound, count in BUCKET.findall(text)}


if __name__ == "__main__":
    main()
