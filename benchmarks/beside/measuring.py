"""What a row of the table is, and how the work of a client and of the brokers is measured."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from benchmarks.beside.sides import Side
from tests.peers.probe import wait_until

TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Scale:
    """How much each row does."""

    megabytes: int
    """Written or read by a row about throughput."""
    requests: int
    """Number of requests, in rows about single requests."""
    latency_s: float
    """Length of rows about latency, at 1,000 messages a second."""
    compacted_megabytes: int


FULL = Scale(megabytes=1_000, requests=100_000, latency_s=10, compacted_megabytes=256)
QUICK = Scale(megabytes=100, requests=10_000, latency_s=2, compacted_megabytes=24)

Values = dict[str, float]
"""The value in each unit."""


class Measured(NamedTuple):
    """What a row has measured."""

    values: Values
    client_share: float = 0.0
    """Processor time of the client while it worked by the time that passed; 0 where throughput is not measured."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table; its key selects it on the command line."""

    key: str
    name: str
    measure: Callable[[Side, Scale, str], Measured]
    """Gets the side, the scale, and four letters that no other measurement of the side has."""
    is_replicated: bool = False
    """Whether it needs three brokers."""


def client_cpu_s() -> float:
    """Processor time of this process and of the programs that it has run."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


@contextlib.contextmanager
def topic(
    side: Side, name: str, *, replicas: tuple[int, ...] = (0,), partitions: int = 1, **config: str
) -> Iterator[str]:
    """A topic whose partitions are led by the first of the replicas; it is deleted again."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 3})
    ids = sorted(admin.list_topics(timeout=TIMEOUT_S).brokers)
    assignment = [[ids[replica] for replica in replicas]] * partitions
    properties = {key.replace("_", "."): value for key, value in config.items()}
    created = admin.create_topics([NewTopic(name, partitions, replica_assignment=assignment, config=properties)])
    created[name].result(TIMEOUT_S)
    wait_until(lambda: _is_led(admin, name), what=f"a leader of {name}", timeout_s=TIMEOUT_S)
    yield name
    admin.delete_topics([name])[name].result(TIMEOUT_S)


def _is_led(admin: AdminClient, name: str) -> bool:
    """Return whether all partitions have leaders that know it: with KRaft, metadata names them a moment earlier."""
    partitions = admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
    if not partitions or any(partition.leader < 0 for partition in partitions.values()):
        return False
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    ends = admin.list_offsets({TopicPartition(name, number): latest for number in partitions})
    try:
        for end in ends.values():
            end.result(TIMEOUT_S)
    except KafkaException:
        return False
    return True


class Work(NamedTuple):
    """What some work took, in seconds."""

    took_s: float
    client_share: float
    broker_cpu_s: float


def timed(side: Side, work: Callable[[], float]) -> Work:
    """Runs work that returns the seconds it took; starting and stopping the client do not count as such."""
    before_s, client_before_s, started = side.cpu_s(), client_cpu_s(), time.perf_counter()
    took_s = work()
    client_s = client_cpu_s() - client_before_s
    return Work(took_s, client_s / (time.perf_counter() - started), side.cpu_s() - before_s)


def per_gigabyte(side: Side, megabytes: float, work: Callable[[], float], *, message_bytes: int = 1024) -> Measured:
    """Megabytes a second, of small messages millions of them, and the processor time of the brokers."""
    done = timed(side, work)
    speed = megabytes / done.took_s
    throughput = {"MB/s": speed} if message_bytes >= 1_000 else {"million messages/s": speed / message_bytes}
    return Measured({**throughput, "CPU s/GB": done.broker_cpu_s / megabytes * 1000}, done.client_share)


def per_request(side: Side, count: int, send: Callable[[], float]) -> Measured:
    """Requests a second, and the processor time of the brokers for each."""
    done = timed(side, send)
    values = {"CPU us": done.broker_cpu_s / count * 1e6, "requests/s": count / done.took_s}
    return Measured(values, done.client_share)
