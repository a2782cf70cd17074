"""Java consumers, old and new, with every built-in assignor join, leave and are killed in one group."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.clients.confluent import Confluent
from tests.integration.jvm.members import Event, Host
from tests.peers.apache_kafka import NEWEST, OLDEST_JUDGE
from tests.peers.kctl_broker import kctl_broker
from tests.peers.probe import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(800)]

ASSIGNORS = ("Range", "RoundRobin", "Sticky", "CooperativeSticky")
PARTITIONS = 7
ROUNDS = 5
PORTION = 140
MEMBERS_MAX = 4
TIMEOUT_S = 200
PROPERTIES = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "100"}


@pytest.mark.parametrize(
    ("steady", "killed"), [(OLDEST_JUDGE, NEWEST), pytest.param(NEWEST, OLDEST_JUDGE, marks=pytest.mark.matrix)]
)
def test_no_partition_is_lost_or_owned_twice_while_members_join_leave_and_are_killed(
    tmp_path: Path, steady: str, killed: str
) -> None:
    """Some members of each group run in a JVM that is not killed; one more and a static one in a JVM that is."""
    chance = random.Random(11)
    topic = "shared"
    with kctl_broker(tmp_path / "data", properties=PROPERTIES) as broker:
        Confluent(broker.bootstrap).create_topic(topic, PARTITIONS)
        with (
            host(steady, broker.bootstrap, topic, tmp_path / "steady.log") as steady_host,
            victim(killed, broker.bootstrap, topic, tmp_path / "victim.log") as the_victim,
        ):
            members: dict[str, list[str]] = {assignor: [] for assignor in ASSIGNORS}
            for number in range(ROUNDS):
                for assignor, names in members.items():
                    if names and (len(names) == MEMBERS_MAX or chance.random() < 0.4):
                        steady_host.leave(assignor, names.pop(chance.randrange(len(names))))
                    else:
                        names.append(f"member-{number}")
                        steady_host.join(assignor, names[-1])
                Confluent(broker.bootstrap).produce(topic, [(b"%d" % key, b"x") for key in range(PORTION)])
                if number % 2 == 1:
                    the_victim.restart()
                ends = Confluent(broker.bootstrap).end_offsets(topic, PARTITIONS)
                for assignor in ASSIGNORS:
                    _wait_until_all_is_read(steady_host, the_victim, assignor, ends)
            for assignor, names in members.items():
                _wait_for_a_whole_assignment(steady_host, the_victim, assignor, {*names, "static", the_victim.name})
            for assignor in ASSIGNORS:
                check_members(_of(assignor, steady_host, the_victim), ends)


class Victim:
    """A JVM with two members of each group, one of them static, that is killed and restarted."""

    def __init__(self, version: str, bootstrap: str, topic: str, log: Path) -> None:
        self._arguments = (version, bootstrap, topic, log)
        self._starts = 0
        self._start()

    def restart(self) -> None:
        self._host.kill()
        self._start()

    def _start(self) -> None:
        self._host = Host(*self._arguments)
        self._starts += 1
        self.name = f"victim-{self._starts}"
        for assignor in ASSIGNORS:
            self._host.join(assignor, self.name)
            self._host.join(assignor, "static", static=True)

    def kill(self) -> None:
        self._host.kill()

    def events(self) -> list[Event]:
        return self._host.events()


@contextmanager
def host(version: str, bootstrap: str, topic: str, log: Path) -> Iterator[Host]:
    started = Host(version, bootstrap, topic, log)
    try:
        yield started
    finally:
        started.kill()


@contextmanager
def victim(version: str, bootstrap: str, topic: str, log: Path) -> Iterator[Victim]:
    started = Victim(version, bootstrap, topic, log)
    try:
        yield started
    finally:
        started.kill()


def _of(assignor: str, steady: Host, killed: Victim) -> list[Event]:
    return sorted(event for event in steady.events() + killed.events() if event.group == assignor)


def committed_offsets(events: list[Event]) -> dict[int, int]:
    """The highest offset by partition; the last report of a killed member may be missing."""
    found: dict[int, int] = {}
    for event in events:
        if event.kind in {"committed", "from"}:
            partition, offset = event.numbers
            found[partition] = max(offset, found.get(partition, 0))
    return found


def _wait_until_all_is_read(steady: Host, killed: Victim, assignor: str, ends: list[int]) -> None:
    def holds() -> bool:
        return committed_offsets(_of(assignor, steady, killed)) == dict(enumerate(ends))

    wait_until(holds, what=f"all records in {assignor}", timeout_s=TIMEOUT_S, interval_s=0.2)


def _wait_for_a_whole_assignment(steady: Host, killed: Victim, assignor: str, members: set[str]) -> None:
    def holds() -> bool:
        last: dict[str, tuple[int, ...]] = {}
        for event in _of(assignor, steady, killed):
            if event.kind == "owns":
                last[event.member] = event.numbers
        now = [last.get(member, (-1,)) for member in members]
        owned = sorted(partition for _, *partitions in now for partition in partitions)
        return len({numbers[0] for numbers in now}) == 1 and owned == list(range(PARTITIONS))

    wait_until(holds, what=f"an assignment of {assignor}", timeout_s=TIMEOUT_S, interval_s=0.2)


def check_members(events: list[Event], ends: list[int]) -> None:
    owners: dict[tuple[int, int], set[str]] = defaultdict(set)
    read: dict[int, set[int]] = defaultdict(set)
    committed: dict[int, int] = defaultdict(int)
    for event in events:
        match event.kind:
            case "owns" if event.numbers[0] >= 0:  # A member that was removed from the group has no generation.
                generation, *partitions = event.numbers
                for partition in partitions:
                    owners[generation, partition].add(event.member)
            case "from":
                partition, offset = event.numbers
                assert offset >= committed[partition], f"{event} begins before what was committed"
            case "read":
                partition, first, last = event.numbers
                read[partition].update(range(first, last + 1))
            case "committed":
                partition, offset = event.numbers
                committed[partition] = max(committed[partition], offset)
    assert {place: names for place, names in owners.items() if len(names) > 1} == {}
    assert {partition: len(offsets) for partition, offsets in read.items()} == dict(enumerate(ends))
