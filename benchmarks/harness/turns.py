"""What a part of a broker costs a request: it is switched on and off in one broker, in short turns in changing order.

So other load on the machine and the place of objects in memory affect both.  The cost is the processor time of the
event loop for a request, in nanoseconds as the scheduler counts it.  The difference is computed for each pair of turns;
its median is not affected by the few pairs in which one turn was disturbed.
"""

from __future__ import annotations

import os
import socket
import statistics
import struct
from pathlib import Path

from benchmarks.harness import librdkafka
from benchmarks.harness.report import Figure
from benchmarks.harness.subject import Subject
from kctl.protocol import codec
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kctl.protocol.headers import RequestHeader, encode_request_header
from kctl.records.build import build_batch
from kctl.records.header import Record

TOPIC, SMALL_TOPIC = "cost", "small"
"""Topics of large and of small batches: a fetch returns the whole first batch of its topic."""
PIPELINED, PIPELINED_BYTES = 50, 1 << 20


def costs(broker: Subject, signal_on: int, what: str, *, runs: int, goal: str) -> list[Figure]:
    """Processor time per request with a part on and off, and the quartiles of the differences in percent.

    `signal_on` is that of benchmarks/harness/switched_broker.py.
    """
    for topic in (TOPIC, SMALL_TOPIC):
        librdkafka.create_topic(broker.bootstrap, topic)
    figures = []
    for work, (frame, count) in workloads().items():
        values: dict[bool, list[float]] = {False: [], True: []}
        for run in range(runs + 1):
            for is_on in (run % 2 == 0, run % 2 == 1):
                os.kill(broker.pid, signal_on if is_on else signal_on + 1)
                used_us = cpu_us(broker, frame, count)
                if run:  # The first warms up.
                    values[is_on].append(used_us)
        for is_on, name in ((False, "off"), (True, "on")):
            figures.append(Figure(f"{work}, {what} {name}", "broker CPU us", values[is_on]))
        differences = [100 * (on - off) / off for off, on in zip(values[False], values[True], strict=True)]
        figures.append(Figure(f"{work}, cost of {what}, quartiles", "%", statistics.quantiles(differences, n=4), goal))
    return figures


def workloads() -> dict[str, tuple[bytes, int]]:
    """A framed request, and how often it is sent in one turn."""
    return {
        "produce 1 MB": (produce_of(TOPIC, 1000), 50),
        "fetch 1 MB": (fetch_of(TOPIC, 1_000_000), 50),
        "produce 16 KB": (produce_of(TOPIC, 16), 500),
        "produce 100 B": (produce_of(SMALL_TOPIC, 1, size=100), 1000),
        "fetch 100 B": (fetch_of(SMALL_TOPIC, 1), 1000),
    }


def produce_of(topic: str, records: int, *, size: int = 1024) -> bytes:
    batch = build_batch([Record(offset=i, timestamp=0, key=None, value=b"x" * size) for i in range(records)])
    data = [PartitionProduceData(index=0, records=memoryview(batch))]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return framed(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 0, 7)


def fetch_of(topic: str, max_bytes: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
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
