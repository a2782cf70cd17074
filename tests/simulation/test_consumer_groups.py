"""Groups of the consumer protocol by seed: members join, leave, are killed and paused, responses are lost, topics grow,
the log refuses records or forgets those that are not replicated, and the coordinator moves.

A partition is used by one member at a time, epochs of the group never decrease, and the records in the log are the
group.  When the trouble is over, every partition has a member that uses it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from kctl.errors import ErrorCode
from kctl.model import ZERO_UUID
from kctl.records.build import build_batch
from kctl.records.header import Record, parse_header
from kctl.server.coordination.consumer_groups.requests import (
    ConsumerGroupSettings,
    HeartbeatOutcome,
    HeartbeatRequest,
)
from kctl.server.coordination.consumer_groups.state import Partitions
from kctl.server.coordination.consumer_groups.topic_names import find_topics
from kctl.server.coordination.groups.actions import (
    Action,
    CancelTimer,
    Discard,
    PersistNewerGroup,
    PersistTombstones,
    ResolveRegexes,
    Respond,
    ScheduleTimer,
)
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.events import (
    AppendDone,
    Event,
    ExpireOffsets,
    GroupLoaded,
    Now,
    RegexesResolved,
    TimerFired,
    TimerKey,
)
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.newer_records import newer_group_records
from kctl.server.coordination.groups.records import GroupPlayback, tombstones
from kctl.server.coordination.groups.step import step
from kctl.system.steps import run_at_once
from tests.property.examples import share_of

SEEDS = range(share_of(30))
STEPS = 400
SESSION_MS = 3_000
HEARTBEAT_MS = 500
REBALANCE_MS = 2_000
CONFIG = GroupConfig(
    consumer=ConsumerGroupSettings(
        session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS, assignment_interval_ms=300, max_size=6
    )
)
NAMES = ("a", "b", "c", "d", "e", "f", "g")
UNKNOWN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


class Topics:
    """state.ClusterTopics that change."""

    def __init__(self) -> None:
        self.topics_version = 1
        self.counts = {"orders": 4, "events": 3}
        self._ids = {"orders": UUID(int=1), "events": UUID(int=2)}

    def grow(self, chance: random.Random) -> None:
        """Adds partitions, creates a topic, or replaces one."""
        self.topics_version += 1
        topic = chance.choice(["orders", "events", "events.more"])
        if topic not in self.counts or chance.random() < 0.2:
            self._ids[topic] = UUID(int=100 + self.topics_version)
            self.counts[topic] = chance.randrange(1, 4)
        else:
            self.counts[topic] = min(self.counts[topic] + 1, 8)

    def set_count(self, topic: str, count: int) -> None:
        """Gives a topic so many partitions, and creates it before if there is none."""
        self._ids.setdefault(topic, UUID(int=100 + self.topics_version))
        self.counts[topic] = count

    def topic_id(self, topic: str) -> UUID:
        return self._ids.get(topic, ZERO_UUID)

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, known in self._ids.items() if known == topic_id), None)

    def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def partition_racks(self, topic: str) -> list[list[str]]:
        return [[] for _ in range(self.counts[topic])]


@dataclass(eq=False)
class Client:
    """A consumer as it sees itself; what it uses, it has been assigned and has not given up."""

    member_id: str
    instance_id: str | None
    subscription: dict[str, object]
    epoch: int = 0
    using: set[tuple[UUID, int]] = field(default_factory=set)
    target: set[tuple[UUID, int]] | None = None
    is_alive: bool = True
    is_leaving: bool = False
    has_lost: bool = True
    """The next heartbeat has everything."""
    beat_ms: int = 0
    is_waiting: bool = False

    def request(self) -> HeartbeatRequest:
        """The next heartbeat: what is to be revoked is given up before."""
        if self.target is not None:
            self.using &= self.target
        owned: dict[UUID, set[int]] = {}
        for topic_id, number in self.using:
            owned.setdefault(topic_id, set()).add(number)
        is_full = self.epoch == 0 or self.has_lost
        return HeartbeatRequest(
            token=self,
            member_id=self.member_id,
            member_epoch=-1 if self.is_leaving else self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
            owned={} if self.epoch == 0 else {topic_id: frozenset(numbers) for topic_id, numbers in owned.items()},
            **(self.subscription if is_full else {}),  # type: ignore[arg-type]
        )

    def hear(self, outcome: HeartbeatOutcome) -> None:
        self.is_waiting = False
        if outcome.error in UNKNOWN or outcome.error is ErrorCode.UNRELEASED_INSTANCE_ID:
            self.epoch = 0
            self.using, self.target, self.has_lost = set(), None, True
        elif outcome.error is not ErrorCode.NONE:
            self.has_lost = True
        elif self.is_leaving:
            self.is_alive = False
            self.using = set()
        else:
            self.epoch = outcome.member_epoch
            self.has_lost = False
            if outcome.assignment is not None:
                self.target = set(flat(outcome.assignment))
            if self.target is not None and self.using <= self.target:
                self.using = set(self.target)


def flat(partitions: Partitions) -> Iterator[tuple[UUID, int]]:
    return ((topic_id, number) for topic_id, numbers in partitions.items() for number in numbers)


class Run:
    """One group, its clients, and the log of its coordinator."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"{seed} consumer groups")
        self.topics = Topics()
        self.now_ms = 0
        self.clients: list[Client] = []
        self.is_quiet = False
        self._log: list[list[Record]] = []
        self._replicated = 0
        self._appends: deque[tuple[int, int]] = deque()
        self._timers: dict[TimerKey, int] = {}
        self._joined = 0
        self.group = self._new_group()

    def _new_group(self) -> Group:
        group = Group("g", CONFIG)
        group.topics = self.topics
        return group

    # The coordinator.

    def do(self, event: Event) -> None:
        before = 0 if self.group.consumer is None else self.group.consumer.epoch.epoch
        inbox: deque[Event] = deque((event,))
        while inbox:
            for action in step(self.group, inbox.popleft(), Now(self.now_ms, self.now_ms + 1)):
                self._perform(action, inbox)
        consumer = self.group.consumer
        assert consumer is None or consumer.epoch.epoch >= before or not consumer.is_stored

    def _perform(self, action: Action, inbox: deque[Event]) -> None:
        match action:
            case Respond(token, outcome):
                assert isinstance(token, Client)
                assert isinstance(outcome, HeartbeatOutcome)
                self._respond(token, outcome)
            case PersistNewerGroup():
                self._append(action, inbox)
            case PersistTombstones():
                gone = tombstones("g", (), is_group_gone=action.is_group_gone, timestamp_ms=0)
                self._log.append(gone + newer_group_records("g", action.newer, 0))
            case ScheduleTimer(key, delay_ms):
                self._timers[key] = self.now_ms + delay_ms
            case CancelTimer(key):
                self._timers.pop(key, None)
            case ResolveRegexes():
                matching = run_at_once(find_topics(action.regexes, self.topics.counts))
                inbox.append(RegexesResolved(matching, self.topics.topics_version))
            case Discard():
                self.group = self._new_group()
                self._timers.clear()
            case _:
                raise AssertionError(action)

    def _append(self, action: PersistNewerGroup, inbox: deque[Event]) -> None:
        chance = 1.0 if self.is_quiet else self.chance.random()
        if chance < 0.05:
            inbox.append(AppendDone(action.append_id, ErrorCode.NOT_ENOUGH_REPLICAS, is_written=False))
            return
        deleted = tombstones("g", (), is_group_gone=action.deletes_classic, timestamp_ms=0)
        self._log.append(deleted + newer_group_records("g", action.changes, 0))
        if chance < 0.4:
            self._appends.append((action.append_id, len(self._log)))
            return
        self._replicate()
        inbox.append(AppendDone(action.append_id, ErrorCode.NONE))

    def _replicate(self) -> None:
        self._replicated = len(self._log)
        while self._appends:
            append_id, _ = self._appends.popleft()
            error = ErrorCode.REQUEST_TIMED_OUT if self.chance.random() < 0.1 else ErrorCode.NONE
            self.do(AppendDone(append_id, error))

    def _respond(self, client: Client, outcome: HeartbeatOutcome) -> None:
        if not self.is_quiet and self.chance.random() < 0.05:
            client.is_waiting, client.has_lost = False, True
            return
        if client.is_alive:
            client.hear(outcome)
            self.check()

    def move(self) -> None:
        """Another broker loads the group, which may not have what was not replicated."""
        self.check_log()
        if self.chance.random() < 0.5:
            self._replicated = len(self._log)
        del self._log[self._replicated :]
        self._appends.clear()
        self._timers.clear()
        for client in self.clients:
            if client.is_waiting:
                client.is_waiting, client.has_lost = False, True
        self.group = self.replayed() or self._new_group()
        self.group.topics = self.topics
        self.do(GroupLoaded())

    def replayed(self) -> Group | None:
        playback = GroupPlayback()
        for records in self._log:
            header = parse_header(build_batch(records))
            for record in records:
                playback.record(record, header)
        return next((group for group in playback.groups(CONFIG) if group is not None), None)

    def check_log(self) -> None:
        """The records are the group."""
        replayed = self.replayed()
        ours = self.group.consumer
        if ours is None or not ours.is_stored:
            assert replayed is None or replayed.consumer is None or replayed.consumer.is_empty
            return
        assert replayed is not None
        assert replayed.consumer is not None
        assert list(replayed.consumer.values()) == list(ours.values())

    # The clients.

    def check(self) -> None:
        """No two members use a partition; one that was fenced while it is paused does not know yet."""
        consumer = self.group.consumer
        used: dict[tuple[UUID, int], str] = {}
        for client in self.clients:
            if not client.is_alive or consumer is None or client.member_id not in consumer.members:
                continue
            if client.epoch < consumer.assignment(client.member_id).previous_epoch:
                continue  # It was fenced and has joined again, and this response is still under way.
            for partition in client.using:
                assert used.setdefault(partition, client.member_id) == client.member_id, f"{partition} is used twice"

    def act(self) -> None:
        """One random event."""
        self.now_ms += self.chance.randrange(1, 200)
        for key in [key for key, due_ms in self._timers.items() if due_ms <= self.now_ms]:
            if self._timers.pop(key, None) is not None:
                self.do(TimerFired(key))
        chance = 1.0 if self.is_quiet else self.chance.random()
        if chance < 0.05:
            self._join()
        elif chance < 0.07 and self.clients:
            self.chance.choice(self.clients).is_leaving = True
        elif chance < 0.09 and self.clients:
            self.chance.choice(self.clients).is_alive = False
        elif chance < 0.11:
            self.topics.grow(self.chance)
        elif chance < 0.13:
            self.move()
        elif chance < 0.14:
            self.do(ExpireOffsets())
        elif self._appends and (self.is_quiet or chance < 0.5):
            self._replicate()
        self.clients = [client for client in self.clients if client.is_alive]
        for client in self.chance.sample(self.clients, len(self.clients)):
            is_due = self.now_ms >= client.beat_ms or (client.target is not None and client.using > client.target)
            if is_due and not client.is_waiting and (self.is_quiet or self.chance.random() < 0.8):
                client.beat_ms = self.now_ms + HEARTBEAT_MS
                client.is_waiting = True
                self.do(client.request())
                self.check()

    def _join(self) -> None:
        self._joined += 1
        instance = self.chance.choice([None, None, None, "static"])
        subscription: dict[str, object] = {
            "topic_names": tuple(self.chance.choice((("orders",), ("orders", "events"))))
        }
        if self.chance.random() < 0.3:
            subscription = {"topic_regex": self.chance.choice(("events.*", "orders|events"))}
        if self.chance.random() < 0.3:
            subscription["server_assignor"] = self.chance.choice(("range", "uniform"))
        self.clients.append(Client(f"m{self._joined}", instance, subscription))

    def is_settled(self) -> bool:
        """Every partition of the subscribed topics is used by one member, and nobody else is in the group."""
        consumer = self.group.consumer
        if consumer is None or set(consumer.members) != {client.member_id for client in self.clients}:
            return False
        expected = {
            (self.topics.topic_id(topic), number)
            for topic in consumer.all_subscribed_names()
            for number in range(self.topics.partition_count(topic) or 0)
        }
        used = [partition for client in self.clients for partition in client.using]
        return sorted(used) == sorted(expected) and consumer.state == "Stable"


@pytest.mark.parametrize("seed", SEEDS)
def test_one_member_uses_a_partition_and_the_records_are_the_group(seed: int) -> None:
    run = Run(seed)
    for number in range(STEPS):
        run.act()
        if number % 20 == 0:
            run.check_log()
    run.is_quiet = True
    run.clients = [client for client in run.clients if client.instance_id is None and not client.is_leaving][:5]
    if not run.clients:
        run.clients.append(Client("last", None, {"topic_names": ("orders",)}))
    for _ in range(2_000):
        run.act()
        if run.is_settled():
            run.check_log()
            return
    raise AssertionError("the group does not settle")
