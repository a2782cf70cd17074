"""Unclean elections on real brokers: readers and copies find the records that were lost (KIP-320).

Broker 0 coordinates the groups.  The topic has replicas on brokers 1 and 2: broker 2 misses the last records, and leads
when broker 1 has been killed.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from kctl.client import Consumer, ConsumerConfig, LogTruncated, TopicPartition
from kctl.commands.frame.exit_status import ExitStatus
from tests.integration.cli.conftest import Kctl, command_line
from tests.peers import apache_kafka, probe
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.kctl_broker import kctl_broker

TIMEOUT_S = 120
PROPERTIES = {
    "unclean.leader.election.enable": "true",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "false",
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "6000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}
COMMON, LOST, NEW = 50, 100, 150
"""Records that both replicas have, records that only broker 1 has, and records that broker 2 writes as the leader."""


class Member(NamedTuple):
    """A running broker, and what kills it."""

    kill: Callable[[], object]
    leave: Callable[[], None]


class Brokers:
    """Brokers 0, 1 and 2 of one cluster, started and killed one by one."""

    def __init__(self, kind: str, folder: Path, zookeeper: str, running: ExitStack) -> None:
        self._kind, self._folder, self._zookeeper, self._running = kind, folder, zookeeper, running
        self._ports = [probe.free_port() for _ in range(3)]
        self._members: dict[int, Member] = {}
        self.bootstrap = f"127.0.0.1:{self._ports[0]}"

    def start(self, number: int) -> None:
        """Starts a broker on the data that it has."""
        stack = self._running.enter_context(ExitStack())
        properties = PROPERTIES | {"broker.id": str(number)}
        folder, port = self._folder / f"broker-{number}", self._ports[number]
        if self._kind == "kctl":
            ours = kctl_broker(folder / "data", zookeeper=self._zookeeper, port=port, properties=properties)
            self._members[number] = Member(stack.enter_context(ours).kill9, stack.close)
        else:
            theirs = apache_kafka.apache_kafka_process(
                self._kind, folder, zookeeper=self._zookeeper, port=port, properties=properties
            )
            _, process = stack.enter_context(theirs)
            self._members[number] = Member(lambda: process.stop(signal.SIGKILL), stack.close)

    def kill(self, number: int) -> None:
        member = self._members.pop(number)
        member.kill()
        member.leave()


@pytest.fixture(params=["kctl", pytest.param(apache_kafka.OLDEST_JUDGE, marks=[pytest.mark.jvm, pytest.mark.matrix])])
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Brokers]:
    if request.param != "kctl" and (reason := apache_kafka.why_not()):
        pytest.skip(reason)
    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper, ExitStack() as running:
        started = Brokers(request.param, tmp_path, zookeeper.connect, running)
        started.start(0)
        yield started


def produce(kctl: Kctl, prefix: str, count: int) -> None:
    lines = "".join(f"{prefix}-{number}\n" for number in range(count)).encode()
    ran = kctl("produce orders --acks all", stdin=lines)
    assert ran.status == 0, ran.err


def leader(kctl: Kctl) -> tuple[int, list[int]]:
    """The leader and the in-sync replicas."""
    (topic,) = kctl("topics describe orders --format json").document
    (partition,) = topic["partitions"]
    return partition["leader"], sorted(partition["isr"])


@pytest.mark.timeout(600)
def test_lost_records_are_reported_and_nothing_is_skipped(brokers: Brokers, tmp_path: Path) -> None:
    kctl = command_line({"KCTL_BOOTSTRAP_SERVER": brokers.bootstrap, "XDG_STATE_HOME": str(tmp_path / "state")})

    def wait_for_leader(number: int, isr: list[int]) -> None:
        probe.wait_until(lambda: leader(kctl) == (number, isr), what=f"leader {number}, ISR {isr}", timeout_s=TIMEOUT_S)

    def elect_uncleanly() -> None:
        brokers.kill(1)
        brokers.start(2)
        wait_for_leader(2, [2])

    # Broker 0 has the internal topics, because it is alone when they are created.
    assert kctl("topics create copies --partitions 1").status == 0
    assert kctl("groups reset-offsets first --topic copies --to-offset 0 --yes").status == 0
    brokers.start(1)
    brokers.start(2)
    assert kctl("topics create orders --replica-assignment 1:2").status == 0
    produce(kctl, "common", COMMON)
    wait_for_leader(1, [1, 2])
    brokers.kill(2)
    wait_for_leader(1, [1])
    produce(kctl, "lost", LOST)

    read = kctl("consume orders --group readers --format jsonl")
    assert (read.status, len(read.out.splitlines())) == (0, COMMON + LOST), read.err
    (group,) = kctl("groups export readers").document["groups"]
    assert [(offset["offset"], offset["leader_epoch"] >= 0) for offset in group["offsets"]] == [(COMMON + LOST, True)]
    assert kctl("copy orders copies --resume-group copier").status == 0
    config = ConsumerConfig(bootstrap_servers=brokers.bootstrap, group_id="program", auto_offset_reset="none")
    with Consumer(config) as consumer:
        consumer.assign({TopicPartition("orders", 0): 0})
        while consumer.position(TopicPartition("orders", 0)) < COMMON + LOST:
            consumer.poll(1_000)
        consumer.commit()

        elect_uncleanly()
        produce(kctl, "new", NEW)
        with pytest.raises(LogTruncated, match=f"offsets {COMMON} to {COMMON + LOST - 1}"):
            probe.wait_until(lambda: bool(consumer.poll(1_000)), what="records", timeout_s=TIMEOUT_S)

    lost = f"offsets {COMMON} to {COMMON + LOST - 1}"
    refused = kctl("consume orders --group readers --format jsonl")
    assert (refused.status, refused.out, lost in refused.err) == (ExitStatus.REFUSED, "", True), refused.err
    go_on = kctl("consume orders --group readers --format jsonl --on-truncation continue")
    expected = [f"new-{number}" for number in range(NEW)]
    assert go_on.status == 0, go_on.err
    assert [json.loads(line)["value"] for line in go_on.out.splitlines()] == expected, go_on.err

    refused = kctl("copy orders copies --resume-group copier")
    assert (refused.status, lost in refused.err) == (ExitStatus.REFUSED, True), refused.err
    assert kctl("copy orders copies --resume-group copier --progress rewind").status == 0
    copied = [json.loads(line)["value"] for line in kctl("consume copies --format jsonl").out.splitlines()]
    assert copied[COMMON + LOST :] == expected
