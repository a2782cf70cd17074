"""Rows about many of something: connections, members of a group, partitions."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import group_rebalance
from benchmarks.beside.measuring import Measured, Scale, per_request, topic
from benchmarks.beside.sides import Side, one_broker
from benchmarks.harness import small_requests
from benchmarks.harness.subject import unpinned
from benchmarks.restart import IDLE_S, SETTLED_AFTER_S, Samples, create, produce

MEMBERS, MEMBERS_PARTITIONS = 500, 1_000
TOPICS, PARTITIONS_PER_TOPIC = 100, 100


def connections(count: int) -> Callable[[Side, Scale, str], Measured]:
    """One request in flight on each."""

    def measure(side: Side, scale: Scale, name: str) -> Measured:
        with topic(side, name):
            frame = small_requests.produce_frame(name, acks=1)
            return per_request(
                side,
                scale.requests,
                lambda: small_requests.send(
                    side.bootstrap, frame, count=scale.requests, connections=count, in_flight=1
                ),
            )

    return measure


def rebalance(side: Side, scale: Scale, name: str) -> Measured:
    """Until the last member has its assignment; the client costs more than the broker."""
    del scale
    measured = group_rebalance.measure(side.brokers[0], MEMBERS, MEMBERS_PARTITIONS, 1, topic=name)
    [(took_s, broker_s)] = asyncio.run(measured)
    return Measured({"s": took_s, "CPU s": broker_s})


def restart(side: Side, scale: Scale, name: str) -> Measured:
    """A broker of its own, as the side was started, on all processors: from its second start until it has appended a
    record; then its memory, and its processor time without clients.
    """
    del scale
    names = [f"{name}-{number}" for number in range(TOPICS)]
    with (
        tempfile.TemporaryDirectory(prefix="kctl-bench-", ignore_cleanup_errors=True) as folder,
        unpinned(side.brokers[0].pid),
    ):
        with one_broker(side.name, Path(folder)) as first:
            samples: Samples = {}
            asyncio.run(create(first.brokers[0], names, PARTITIONS_PER_TOPIC, samples))
            produce(first.bootstrap, names, range(PARTITIONS_PER_TOPIC), 1)
        with one_broker(side.name, Path(folder)) as second:
            serving = time.perf_counter()
            produce(second.bootstrap, names[-1:], [PARTITIONS_PER_TOPIC - 1], 1)
            took_s = second.start_s + time.perf_counter() - serving
            time.sleep(SETTLED_AFTER_S)
            used_s = second.cpu_s()
            time.sleep(IDLE_S)
            idle = 1000 * (second.cpu_s() - used_s) / IDLE_S
            return Measured({"s": took_s, "MB of memory": second.brokers[0].resident_mb(), "idle CPU ms/s": idle})
