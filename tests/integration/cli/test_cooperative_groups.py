"""`kctl consume --group` in a `cooperative-sticky` group with librdkafka and Java, with each of them as leader."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.integration.cli.conftest import Kctl
from tests.integration.cli.group_readers import TIMEOUT_S, Reader, fill, lag, partitions_of_members
from tests.integration.jvm.members import Host
from tests.peers import apache_kafka, probe

pytestmark = pytest.mark.jvm

PORTION = 30
SESSION_TIMEOUT_MS = 30_000
CONFIG = "heartbeat.interval.ms=500\nauto.commit.interval.ms=200\n"

Place = tuple[int, int]
"""A record: its partition and offset."""


class Librdkafka:
    """A member that commits what it reads and polls on request."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.seen: list[Place] = []
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": topic,
                "partition.assignment.strategy": "cooperative-sticky",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 500,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> None:
        ends: dict[int, int] = {}
        for message in self._consumer.consume(PORTION, 0.05):
            partition, offset = message.partition(), message.offset()
            assert message.error() is None, message.error()
            assert partition is not None
            assert offset is not None
            self.seen.append((partition, offset))
            ends[partition] = offset + 1
        if ends:
            behind = [TopicPartition(self._topic, partition, offset) for partition, offset in ends.items()]
            self._consumer.commit(offsets=behind, asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class Sharing:
    """The members of one group, including those that have left."""

    def __init__(self, kctl: Kctl, topic: str, ours: Reader, jvm: Host) -> None:
        self.librdkafka: Librdkafka | None = None
        self._kctl = kctl
        self._topic = topic
        self._ours = ours
        self._jvm = jvm
        self._before: list[Place] = []
        self._count = 0

    def leave(self) -> None:
        """A member of librdkafka."""
        assert self.librdkafka is not None
        self._before += self.librdkafka.seen
        self.librdkafka.close()
        self.librdkafka = None

    def await_shares(self, *counts: int) -> None:
        """Waits until each member has so many partitions; then all written records are read once and committed."""
        claim = f"partitions of members: {counts}"
        self._wait_until(claim, lambda: partitions_of_members(self._kctl, self._topic) == list(counts))
        fill(self._kctl, self._topic, range(self._count, self._count + PORTION))
        self._count += PORTION
        self._wait_until("all is read", lambda: len(set(self.seen)) == self._count)
        self._wait_until("all is committed", lambda: lag(self._kctl, self._topic) == 0)
        assert len(self.seen) == self._count, "something was read twice"

    @property
    def seen(self) -> list[Place]:
        places = [(record["partition"], record["offset"]) for record in self._ours.records]
        for event in self._jvm.events():
            if event.kind == "read":
                partition, first, last = event.numbers
                places += [(partition, offset) for offset in range(first, last + 1)]
        return places + self._before + (self.librdkafka.seen if self.librdkafka is not None else [])

    def _wait_until(self, what: str, claim: Callable[[], bool]) -> None:
        def holds() -> bool:
            if self.librdkafka is not None:
                self.librdkafka.poll()
            return claim()

        probe.wait_until(holds, what=what, timeout_s=TIMEOUT_S)


@pytest.fixture
def jvm(bootstrap: str, topic: str, tmp_path: Path) -> Iterator[Host]:
    """Members of the Java client."""
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    log = tmp_path / "members.log"
    host = Host(apache_kafka.NEWEST, bootstrap, topic, log, session_timeout_ms=SESSION_TIMEOUT_MS)
    yield host
    host.kill()


@pytest.mark.parametrize(
    ("bootstrap", "assignor"),
    [
        ("kctl", "range,cooperative-sticky"),
        pytest.param("kctl", "cooperative-sticky", marks=pytest.mark.matrix),
        pytest.param(apache_kafka.LAST_WITH_ZOOKEEPER, "cooperative-sticky", marks=pytest.mark.matrix),
    ],
    indirect=["bootstrap"],
)
def test_each_record_is_read_once_while_others_join_and_leave(
    assignor: str, kctl: Kctl, bootstrap: str, topic: str, tmp_path: Path, readers: list[Reader], jvm: Host
) -> None:
    config = tmp_path / "reader.properties"
    config.write_text(CONFIG)
    ours = Reader(bootstrap, topic, tmp_path / "ours", config=config, assignor=assignor)
    readers.append(ours)
    sharing = Sharing(kctl, topic, ours, jvm)
    sharing.await_shares(3)
    sharing.librdkafka = Librdkafka(bootstrap, topic)
    sharing.await_shares(1, 2)
    jvm.join("CooperativeSticky", "java", group=topic)
    sharing.await_shares(1, 1, 1)
    sharing.leave()
    sharing.await_shares(1, 2)
    jvm.leave(topic, "java")
    sharing.await_shares(3)
    assert ours.end(signal.SIGTERM) == 143
    assert ours.err.read_text() == ""
