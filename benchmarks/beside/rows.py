"""The rows of the table: what is done to one side, and what it costs.

Each row runs once per side and turn, in topics of its own.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import cleaner_latency, produce_latency
from benchmarks.beside import large
from benchmarks.beside.measuring import TIMEOUT_S, Measured, Row, Scale, per_gigabyte, per_request, topic
from benchmarks.beside.sides import Side, one_broker
from benchmarks.harness import librdkafka, small_requests
from benchmarks.harness.subject import unpinned
from tests.peers.probe import wait_until

COMPACTED_PARTITIONS = 2
READERS = 10
POLLING_CONSUMERS = 1_000
PIPELINED = 64
SINGLE_CONNECTIONS = 40
REPLICATED_IN_FLIGHT = 5
JAVA_IN_FLIGHT = 5
"""max.in.flight.requests.per.connection of the Java producer, which is idempotent with acks=all by default."""


def _produce(size: int) -> Callable[[Side, Scale, str], Measured]:
    def measure(side: Side, scale: Scale, name: str) -> Measured:
        count = scale.megabytes * 1_000_000 // size
        with topic(side, name):
            return per_gigabyte(
                side,
                scale.megabytes,
                lambda: librdkafka.produce(side.bootstrap, name, count=count, size=size),
                message_bytes=size,
            )

    return measure


def _consume(size: int) -> Callable[[Side, Scale, str], Measured]:
    def measure(side: Side, scale: Scale, name: str) -> Measured:
        count = scale.megabytes * 1_000_000 // size
        with topic(side, name):
            librdkafka.produce(side.bootstrap, name, count=count, size=size)
            return per_gigabyte(
                side,
                scale.megabytes,
                lambda: librdkafka.consume(side.bootstrap, name, count=count),
                message_bytes=size,
            )

    return measure


def _ten_readers(side: Side, scale: Scale, name: str) -> Measured:
    megabytes = scale.megabytes / READERS * 2
    count = int(megabytes * 1_000_000) // 1024

    def read() -> float:
        started = time.perf_counter()
        with ThreadPoolExecutor(READERS) as pool:
            list(pool.map(lambda _: librdkafka.consume(side.bootstrap, name, count=count), range(READERS)))
        return time.perf_counter() - started

    with topic(side, name):
        librdkafka.produce(side.bootstrap, name, count=count, size=1024)
        return per_gigabyte(side, megabytes * READERS, read)


def _recompressed(side: Side, scale: Scale, name: str) -> Measured:
    count = scale.megabytes * 1_000_000 // 1024
    with topic(side, name, compression_type="zstd"):
        return per_gigabyte(
            side,
            scale.megabytes,
            lambda: librdkafka.produce(
                side.bootstrap, name, count=count, size=1024, settings={"compression.codec": "lz4"}
            ),
        )


def _single_requests(
    *, connections: int, in_flight: int, acks: int, replicas: tuple[int, ...] = (0,), partitions: int = 1
) -> Callable[[Side, Scale, str], Measured]:
    """With one message for each of the partitions; requests for many partitions are fewer."""

    def measure(side: Side, scale: Scale, name: str) -> Measured:
        count = scale.requests // partitions if partitions > 1 else scale.requests
        with topic(side, name, replicas=replicas, partitions=partitions):
            frame = small_requests.produce_frame(name, acks=acks, partitions=partitions)
            return per_request(
                side,
                count,
                lambda: small_requests.send(
                    side.bootstrap, frame, count=count, connections=connections, in_flight=in_flight
                ),
            )

    return measure


def _idempotent_requests(side: Side, scale: Scale, name: str) -> Measured:
    """With one message each, of a producer with the defaults of the Java client."""
    frames = small_requests.idempotent_frames(name, scale.requests)
    with topic(side, name):
        return per_request(
            side,
            scale.requests,
            lambda: small_requests.send(
                side.bootstrap, frames, count=scale.requests, connections=1, in_flight=JAVA_IN_FLIGHT
            ),
        )


def _small_fetches(side: Side, scale: Scale, name: str) -> Measured:
    """Of one batch with a message of 100 B."""
    with topic(side, name):
        produced = small_requests.produce_frame(name, acks=1)
        small_requests.send(side.bootstrap, produced, count=1, connections=1, in_flight=1)
        frame = small_requests.fetch_frame(name)
        return per_request(
            side,
            scale.requests,
            lambda: small_requests.send(
                side.bootstrap,
                frame,
                count=scale.requests,
                connections=SINGLE_CONNECTIONS,
                in_flight=1,
                error_at=small_requests.FETCH_ERROR,
            ),
        )


def _replicated(side: Side, scale: Scale, name: str) -> Measured:
    count = scale.megabytes * 1_000_000 // 1024
    with topic(side, name, replicas=(0, 1, 2)):
        return per_gigabyte(
            side,
            scale.megabytes,
            lambda: librdkafka.produce(side.bootstrap, name, count=count, size=1024, acks=-1),
        )


def _memory(side: Side, scale: Scale, name: str) -> Measured:
    del scale, name
    return Measured({"MB of memory": side.brokers[0].resident_mb()})


def _start(side: Side, scale: Scale, name: str) -> Measured:
    """Of one more broker, on all processors, as the side was started; then it is stopped."""
    del scale, name
    with (
        tempfile.TemporaryDirectory(prefix="kctl-bench-", ignore_cleanup_errors=True) as folder,
        unpinned(side.brokers[0].pid),
        one_broker(side.name, Path(folder)) as started,
    ):
        return Measured({"s": started.start_s})


def _quantiles(latencies_ms: list[float]) -> Measured:
    cuts = statistics.quantiles(latencies_ms, n=100)
    return Measured({"p50 ms": cuts[49], "p99 ms": cuts[98]})


def _paced(side: Side, name: str, seconds: float) -> Measured:
    count = int(seconds * produce_latency.RATE_PER_S)
    return _quantiles(produce_latency.measure(side.bootstrap, name, count=count))


def _idle_latency(side: Side, scale: Scale, name: str) -> Measured:
    with topic(side, name):
        return _paced(side, name, scale.latency_s)


def _compaction(codec: str) -> Callable[[Side, Scale, str], Measured]:
    """From the permission to clean until the last partition is clean, in megabytes before compression."""

    def measure(side: Side, scale: Scale, name: str) -> Measured:
        cleaner_latency.fill(
            side.bootstrap,
            name,
            partitions=COMPACTED_PARTITIONS,
            megabytes=scale.compacted_megabytes,
            batch_bytes=16_384,
            codec=codec,
        )

        def clean() -> float:
            started = time.perf_counter()
            cleaner_latency.set_dirty_ratio(side.bootstrap, name, "0")
            wait_until(
                lambda: cleaner_latency.cleaned(side.logs, name) == COMPACTED_PARTITIONS,
                what=f"the end of the compaction of {name}",
                timeout_s=TIMEOUT_S,
            )
            return time.perf_counter() - started

        measured = per_gigabyte(side, scale.compacted_megabytes, clean)
        librdkafka.delete_topic(side.bootstrap, name)
        return measured

    return measure


def _latency_under_compaction(side: Side, scale: Scale, name: str) -> Measured:
    table = f"{name}-table"
    cleaner_latency.fill(
        side.bootstrap,
        table,
        partitions=COMPACTED_PARTITIONS,
        megabytes=scale.compacted_megabytes,
        batch_bytes=16_384,
    )
    with topic(side, name):
        cleaner_latency.set_dirty_ratio(side.bootstrap, table, "0")
        latencies_ms = cleaner_latency.latencies_ms_until(
            side.bootstrap,
            seconds=cleaner_latency.TIMEOUT_S,
            is_over=lambda: cleaner_latency.cleaned(side.logs, table) == COMPACTED_PARTITIONS,
            topic=name,
        )
    librdkafka.delete_topic(side.bootstrap, table)
    return _quantiles(latencies_ms)


def _latency_under_long_polls(side: Side, scale: Scale, name: str) -> Measured:
    with (
        topic(side, f"{name}-quiet") as quiet,
        topic(side, name),
        small_requests.long_polls(side.bootstrap, quiet, POLLING_CONSUMERS),
    ):
        return _paced(side, name, scale.latency_s)


def _latency_under_catching_up(side: Side, scale: Scale, name: str) -> Measured:
    """Broker 1 is held while broker 0 takes a topic that both replicate, and let go when the latency is measured."""
    count = scale.megabytes * 1_000_000 // 1024
    with topic(side, f"{name}-held", replicas=(0, 1)) as held, topic(side, name):
        os.kill(side.brokers[1].pid, signal.SIGSTOP)
        try:
            librdkafka.produce(side.bootstrap, held, count=count, size=1024)
        finally:
            os.kill(side.brokers[1].pid, signal.SIGCONT)
        return _paced(side, name, scale.latency_s)


ROWS = (
    Row("start", "start to serving, without ZooKeeper", _start),
    Row("produce-1k", "produce 1 KB", _produce(1024)),
    Row("produce-100", "produce 100 B", _produce(100)),
    Row("consume-1k", "consume 1 KB", _consume(1024)),
    Row("consume-100", "consume 100 B", _consume(100)),
    Row(
        "pipelined",
        f"one message per request, {PIPELINED} in flight",
        _single_requests(connections=1, in_flight=PIPELINED, acks=1),
    ),
    Row(
        "single",
        f"one message per request, {SINGLE_CONNECTIONS} connections, one in flight",
        _single_requests(connections=SINGLE_CONNECTIONS, in_flight=1, acks=1),
    ),
    Row(
        "partitions-20",
        f"one message for each of 20 partitions per request, {SINGLE_CONNECTIONS} connections",
        _single_requests(connections=SINGLE_CONNECTIONS, in_flight=1, acks=1, partitions=20),
    ),
    Row(
        "partitions-200",
        f"one message for each of 200 partitions per request, {SINGLE_CONNECTIONS} connections",
        _single_requests(connections=SINGLE_CONNECTIONS, in_flight=1, acks=1, partitions=200),
    ),
    Row(
        "idempotent",
        f"one message per request, idempotent, acks=all, {JAVA_IN_FLIGHT} in flight",
        _idempotent_requests,
    ),
    Row("small-fetch", f"Fetch of one message, {SINGLE_CONNECTIONS} connections", _small_fetches),
    Row("connections-1000", "one message per request, 1,000 connections, one in flight", large.connections(1_000)),
    Row("connections-10000", "one message per request, 10,000 connections, one in flight", large.connections(10_000)),
    Row("group-500", "a rebalance of 500 members over 1,000 partitions", large.rebalance),
    Row("restart-10000", "10,000 partitions: a clean restart until an append", large.restart),
    Row("recompressed", "lz4 recompressed to zstd", _recompressed),
    Row("readers", f"{READERS} readers of one topic", _ten_readers),
    Row("compaction", "compaction of 100 B records", _compaction("none")),
    Row("compaction-lz4", "compaction of 100 B records, lz4", _compaction("lz4")),
    Row("memory", "memory after the load", _memory),
    Row("latency-idle", "produce at 1,000/s, idle", _idle_latency),
    Row("latency-compaction", "produce at 1,000/s, under compaction", _latency_under_compaction),
    Row(
        "latency-polls",
        "produce at 1,000/s, 1,000 consumers in long polls",
        _latency_under_long_polls,
    ),
    Row("replicated", "three brokers, acks=all, 1 KB", _replicated, is_replicated=True),
    Row(
        "replicated-single",
        f"three brokers, acks=all, one message per request, {REPLICATED_IN_FLIGHT} in flight",
        _single_requests(connections=1, in_flight=REPLICATED_IN_FLIGHT, acks=-1, replicas=(0, 1, 2)),
        is_replicated=True,
    ),
    Row(
        "latency-catching-up",
        "produce at 1,000/s, a follower catching up",
        _latency_under_catching_up,
        is_replicated=True,
    ),
)
