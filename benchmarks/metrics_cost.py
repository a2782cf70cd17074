"""What do metrics cost a broker, and how long does a scrape of 5,000 partitions take, also with their lag?

    python -m benchmarks.metrics_cost [--runs 100] [--partitions 5000]

Recording is switched on and off in one broker, in short turns in changing order, so that other load on the machine and
the place of objects in memory affect both.  The cost is the processor time of the event loop for a request, for
requests with 1 MB and, as the worst case, for small ones that arrive together.  The difference is computed for each
pair of turns; its median is not affected by the few pairs in which one turn was disturbed.
A scrape is measured from the request to its last byte; how long the event loop was busy at a time is read from the
broker's own histogram.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import statistics
import struct
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.harness import librdkafka
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject, pin
from kctl.protocol import codec
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kctl.protocol.headers import RequestHeader, encode_request_header
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.peers import probe
from tests.peers.kctl_broker import kctl_broker

TOPIC = "cost"
PIPELINED, PIPELINED_BYTES = 50, 1 << 20
MANY = "many"
SCRAPES, SCRAPES_OF_LAG = 10, 60
"""The lag of groups is read again every METRICS_LAG_CACHE_MS or later: more scrapes include several collections."""
PAUSE_S = 1
SWITCHED = (sys.executable, "-m", "benchmarks.harness.switched_metrics")
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
        figures = [*costs(subject, port, runs=given.runs), *scrapes(subject, port, partitions=given.partitions)]
    report("metrics_cost", figures, client=librdkafka.client_name(), runs=given.runs)


def costs(broker: Subject, port: int, *, runs: int) -> list[Figure]:
    """Processor time per request without and with metrics, and the difference in percent of each pair of turns."""
    librdkafka.create_topic(broker.bootstrap, TOPIC)
    figures = []
    for what, (frame, count) in workloads().items():
        values: dict[bool, list[float]] = {False: [], True: []}
        before = recorded(port)
        for run in range(runs + 1):
            for is_on in (run % 2 == 0, run % 2 == 1):
                os.kill(broker.pid, signal.SIGRTMIN if is_on else signal.SIGRTMIN + 1)
                used_us = cpu_us(broker, frame, count)
                if run:  # The first warms up.
                    values[is_on].append(used_us)
        assert recorded(port) - before == (runs + 1) * count, "a turn was recorded only in part"
        for is_on, name in ((False, "off"), (True, "on")):
            figures.append(Figure(f"{what}, metrics {name}", "broker CPU us", values[is_on]))
        differences = [100 * (on - off) / off for off, on in zip(values[False], values[True], strict=True)]
        quartiles = statistics.quantiles(differences, n=4)
        figures.append(Figure(f"{what}, cost of metrics, quartiles", "%", quartiles, "< 3"))
    return figures


def recorded(port: int) -> int:
    """The Produce and Fetch requests that were recorded."""
    return int(sum(float(count) for count in REQUESTS.findall(scrape(port))))


def workloads() -> dict[str, tuple[bytes, int]]:
    """A framed request, and how often it is sent in one turn."""
    return {
        "produce 1 MB": (produce_of(1000), 50),
        "fetch 1 MB": (fetch_of(1_000_000), 50),
        "produce 100 B": (produce_of(1, size=100), 1000),
        "fetch of one batch": (fetch_of(1), 1000),
    }


def produce_of(records: int, *, size: int = 1024) -> bytes:
    batch = build_batch([Record(offset=i, timestamp=0, key=None, value=b"x" * size) for i in range(records)])
    data = [PartitionProduceData(index=0, records=memoryview(batch))]
    topics = [TopicProduceData(name=TOPIC, partition_data=data)]
    return framed(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 0, 7)


def fetch_of(max_bytes: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
    )
    return framed(request, 1, 11)


def cpu_us(broker: Subject, frame: bytes, count: int) -> float:
    """Processor time of the broker for one of `count` pipelined requests."""
    before_ns = thread_ns(broker.pid)
    pipeline(broker, frame, count)
    return (thread_ns(broker.pid) - before_ns) / count / 1000


def thread_ns(pid: int) -> int:
    """Processor time of the main thread, which runs the event loop."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])


def framed(request: ProduceRequest | FetchRequest, key: int, version: int) -> bytes:
    body = encode_request_header(RequestHeader(key, version, 1, "bench")) + codec.encode_bytes(request, version)
    return struct.pack(">i", len(body)) + body


def pipeline(broker: Subject, frame: bytes, count: int) -> None:
    """Sends the same request so often, a few at a time, and reads the responses."""
    together = max(1, min(PIPELINED, PIPELINED_BYTES // len(frame)))
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port))) as sock, sock.makefile("rb") as stream:
        for _ in range(count // together):
            sock.sendall(frame * together)
            for _ in range(together):
                (size,) = struct.unpack(">i", stream.read(4))
                stream.read(size)


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
