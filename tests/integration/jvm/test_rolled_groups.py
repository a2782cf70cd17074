"""Consumers are moved one by one from the classic to the consumer protocol and back, while records are written.

Clients: Java 4.3.1 with the assignors range and cooperative-sticky, and librdkafka, whose cooperative-sticky adds data
to assignments, so that neither broker converts its groups.  Brokers: ours, and Apache Kafka 4.3.1 as the judge of the
test.  No partition is owned twice, none stays without a member, and every record is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.integration.clients.confluent import Confluent
from tests.integration.jvm.members import Event, Host
from tests.integration.jvm.test_group_members import check_members, committed_offsets
from tests.peers.apache_kafka import NEWEST_BROKER, TOOLS_FOR_NEWEST, apache_kafka
from tests.peers.kctl_broker import kctl_broker
from tests.peers.probe import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

PARTITIONS = 4
PORTION = 60
"""Records that are written after each change of members."""
TIMEOUT_S = 100
PROPERTIES = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "100",
    "offsets.topic.num.partitions": "3",
}
CHANGES = ((True, False), (True, False), (False, True), (False, True), (True, True), (True, True))
"""Whether the member that joins is of the classic protocol, and whether the oldest member leaves before."""
OURS, APACHE = "ours", "apache"
BROKERS = (OURS, pytest.param(APACHE, marks=pytest.mark.matrix))


@contextmanager
def broker_of(who: str, folder: Path) -> Iterator[str]:
    """The address of a broker."""
    if who == APACHE:
        with apache_kafka(NEWEST_BROKER, folder, properties=PROPERTIES) as bootstrap:
            yield bootstrap
        return
    properties = {name: value for name, value in PROPERTIES.items() if ".min.heartbeat" not in name}
    with kctl_broker(folder, properties=properties) as broker:
        yield broker.bootstrap


class JavaGroup:
    """The members of one group in a JVM with others."""

    def __init__(self, host: Host, group: str, assignor: str) -> None:
        self._host = host
        self._group = group
        self._assignor = assignor
        self._members: list[str] = []

    def join(self, *, is_classic: bool) -> None:
        name = f"member-{len({event.member for event in self.events()}) + len(self._members)}"
        self._members.append(name)
        self._host.join(self._assignor if is_classic else "Consumer", name, group=self._group)

    def leave(self) -> None:
        """The oldest member leaves."""
        self._host.leave(self._group, self._members.pop(0))

    def events(self) -> list[Event]:
        return sorted(event for event in self._host.events() if event.group == self._group)

    def wait(self, ends: list[int]) -> None:
        """Returns when all records are committed and each partition has one owner of the same epoch."""
        wait_until(
            lambda: committed_offsets(self.events()) == dict(enumerate(ends)) and self._is_whole(),
            what=f"{self._group} with {self._members}",
            timeout_s=TIMEOUT_S,
            interval_s=0.1,
        )

    def _is_whole(self) -> bool:
        last = {event.member: event.numbers for event in self.events() if event.kind == "owns"}
        now = [last.get(name, (-1,)) for name in self._members]
        owned = sorted(partition for _, *partitions in now for partition in partitions)
        return len({numbers[0] for numbers in now}) == 1 and owned == list(range(PARTITIONS))


@pytest.mark.parametrize("who", BROKERS)
def test_java_consumers_are_rolled_to_the_consumer_protocol_and_back(tmp_path: Path, who: str) -> None:
    with broker_of(who, tmp_path / "broker") as bootstrap, ExitStack() as cleanup:
        client = Confluent(bootstrap)
        client.create_topic("rolled", PARTITIONS)
        host = Host(TOOLS_FOR_NEWEST, bootstrap, "rolled", tmp_path / "members.log")
        cleanup.callback(host.kill)
        groups = [JavaGroup(host, "by-range", "Range"), JavaGroup(host, "sticky", "CooperativeSticky")]

        def change(*, is_classic: bool, leaves: bool) -> None:
            for group in groups:
                if leaves:
                    group.leave()
                group.join(is_classic=is_classic)
            client.produce("rolled", [(b"%d" % key, b"x") for key in range(PORTION)])
            ends = client.end_offsets("rolled", PARTITIONS)
            for group in groups:
                group.wait(ends)

        for is_classic, leaves in CHANGES:
            change(is_classic=is_classic, leaves=leaves)
        for group in groups:
            check_members(group.events(), client.end_offsets("rolled", PARTITIONS))


class Readers:
    """Consumers of librdkafka in one group, which are polled in turn."""

    def __init__(self, bootstrap: str, assignor: str) -> None:
        self._bootstrap = bootstrap
        self._assignor = assignor
        self._consumers: list[confluent_kafka.Consumer] = []
        self.read: Counter[tuple[int | None, int | None]] = Counter()

    def join(self, *, is_classic: bool) -> None:
        settings: dict[str, Any] = {"group.protocol": "consumer"}
        if is_classic:
            settings = {"partition.assignment.strategy": self._assignor, "session.timeout.ms": 6_000}
            settings["heartbeat.interval.ms"] = 300
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"readers-{self._assignor}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "broker.address.family": "v4",
                **settings,
            }
        )
        consumer.subscribe(["read"])
        self._consumers.append(consumer)

    def leave(self) -> None:
        """The oldest member leaves; it has committed what it has read."""
        self._consumers.pop(0).close()

    def close(self) -> None:
        while self._consumers:
            self.leave()

    def poll(self) -> None:
        """Each member reads and commits; callbacks of rebalances run in there, so that ownership is seen exactly."""
        for consumer in self._consumers:
            messages = [message for message in consumer.consume(20, 0.02) if message.error() is None]
            self.read.update((message.partition(), message.offset()) for message in messages)
            if messages:
                # If this fails, the new owner reads the records again.
                with suppress(confluent_kafka.KafkaException):
                    consumer.commit(asynchronous=False)
            owners = Counter(partition.partition for each in self._consumers for partition in each.assignment())
            assert not owners or max(owners.values()) == 1, "a partition is owned twice"

    def has_all(self, ends: list[int]) -> bool:
        """Return whether all records were read and each partition has an owner."""
        self.poll()
        expected = {(partition, offset) for partition, end in enumerate(ends) for offset in range(end)}
        owned = [partition.partition for each in self._consumers for partition in each.assignment()]
        assigned = all(each.assignment() for each in self._consumers)
        return set(self.read) == expected and sorted(owned) == list(range(PARTITIONS)) and assigned


@pytest.mark.parametrize("who", BROKERS)
def test_consumers_of_librdkafka_are_rolled_to_the_consumer_protocol_and_back(tmp_path: Path, who: str) -> None:
    with broker_of(who, tmp_path / "broker") as bootstrap, ExitStack() as cleanup:
        client = Confluent(bootstrap)
        client.create_topic("read", PARTITIONS)
        groups = [Readers(bootstrap, "range"), Readers(bootstrap, "roundrobin")]
        for group in groups:
            cleanup.callback(group.close)
        for is_classic, leaves in CHANGES:
            for group in groups:
                if leaves:
                    group.leave()
                group.join(is_classic=is_classic)
            client.produce("read", [(b"%d" % key, b"x") for key in range(PORTION)])
            ends = client.end_offsets("read", PARTITIONS)
            for group in groups:
                wait_until(
                    lambda group=group, ends=ends: group.has_all(ends),  # type: ignore[misc]
                    what="all records are read by members of all partitions",
                    timeout_s=TIMEOUT_S,
                    interval_s=0,
                )
