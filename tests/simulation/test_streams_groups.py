"""Streams groups by seed: members of several processes join, leave, are killed and paused, responses are lost, topics
appear, grow and are deleted, standby tasks are switched on and off, the log refuses records or forgets those that are
not replicated, and the coordinator moves.

An active task is run by one member at a time, and a process has a task in one role only.  Epochs of the group never
decrease, and the records in the log are the group.  When the trouble is over, every task is run and has its standbys.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from kctl.errors import ErrorCode
from kctl.model import ZERO_UUID, TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record, parse_header
from kctl.server.coordination.groups.actions import (
    Action,
    CancelTimer,
    Discard,
    PersistNewerGroup,
    PersistTombstones,
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
    TimerFired,
    TimerKey,
)
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.newer_records import newer_group_records
from kctl.server.coordination.groups.records import GroupPlayback, tombstones
from kctl.server.coordination.groups.step import step
from kctl.server.coordination.streams_groups.requests import StreamsGroupSettings, StreamsHeartbeat, StreamsOutcome
from kctl.server.coordination.streams_groups.state import (
    CopartitionGroup,
    InternalTopic,
    StreamsGroupState,
    Subtopology,
    TaskId,
    Tasks,
    TaskSets,
    Topology,
)
from tests.property.examples import share_of

SEEDS = range(share_of(30))
STEPS = 400
SETTINGS = StreamsGroupSettings(
    session_timeout_ms=3_000,
    heartbeat_interval_ms=500,
    max_size=8,
    initial_rebalance_delay_ms=300,
    assignment_interval_ms=200,
)
REBALANCE_MS = 2_000
TOPOLOGY = Topology(
    0,
    {
        "0": Subtopology(subtopology_id="0", source_topics=("lines",), repartition_sinks=("words",)),
        "1": Subtopology(
            subtopology_id="1",
            source_topics=("names",),
            repartition_sources=(InternalTopic(name="words"),),
            changelogs=(InternalTopic(name="counts", configs=(("cleanup.policy", "compact"),)),),
            copartition_groups=(CopartitionGroup((0,), (), (0,)),),
        ),
    },
)
UNKNOWN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


class Topics:
    """newer_groups.ClusterTopics that change."""

    def __init__(self) -> None:
        self.topics_version = 1
        self.counts = {"lines": 3, "names": 2}
        self._created = 0
        self._ids = {"lines": UUID(int=1), "names": UUID(int=2)}

    def create(self, name: str, count: int) -> None:
        self.topics_version += 1
        self.counts[name] = count
        self._created += 1
        self._ids[name] = UUID(int=100 + self._created)

    def delete(self, *names: str) -> None:
        self.topics_version += 1
        for name in names:
            self.counts.pop(name, None)

    def grow(self, name: str) -> None:
        if name in self.counts:
            self.topics_version += 1
            self.counts[name] = min(self.counts[name] + 1, 6)

    def topic_id(self, topic: str) -> UUID:
        return self._ids[topic] if topic in self.counts else ZERO_UUID

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name in self.counts if self._ids[name] == topic_id), None)

    def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def partition_racks(self, topic: str) -> list[list[str]]:
        return [[] for _ in range(self.counts[topic])]


Roles = tuple[set[TaskId], set[TaskId]]
"""Active and standby tasks."""


@dataclass(eq=False)
class Client:
    """A thread of an application as it sees itself; what it runs, it has been assigned and has not given up."""

    member_id: str
    process_id: str
    epoch: int = 0
    running: Roles = field(default_factory=lambda: (set(), set()))
    target: Roles | None = None
    is_alive: bool = True
    is_leaving: bool = False
    has_lost: bool = True
    beat_ms: int = 0
    is_waiting: bool = False

    def request(self) -> StreamsHeartbeat:
        """The next heartbeat: what is to be revoked is given up before."""
        if self.target is not None:
            for mine, wanted in zip(self.running, self.target, strict=True):
                mine.intersection_update(wanted)
        is_joining = self.epoch == 0 and not self.is_leaving
        owned = TaskSets() if self.epoch == 0 else TaskSets(*map(grouped, self.running))
        return StreamsHeartbeat(
            token=self,
            member_id=self.member_id,
            member_epoch=-1 if self.is_leaving else self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if is_joining or self.has_lost else -1,
            topology=TOPOLOGY if is_joining else None,
            owned=owned,
            process_id=self.process_id,
        )

    def hear(self, outcome: StreamsOutcome) -> None:
        self.is_waiting = False
        if outcome.error in UNKNOWN:
            self.epoch, self.running, self.target, self.has_lost = 0, (set(), set()), None, True
        elif outcome.error is not ErrorCode.NONE:
            self.has_lost = True
        elif self.is_leaving:
            self.is_alive, self.running = False, (set(), set())
        else:
            self.epoch, self.has_lost = outcome.member_epoch, False
            if outcome.assigned is not None:
                tasks = outcome.assigned.without_epochs()
                self.target = set(flat(tasks.active)), set(flat(tasks.standby))
            if self.target is not None and all(map(set.issubset, self.running, self.target)):
                self.running = set(self.target[0]), set(self.target[1])


def flat(tasks: Tasks) -> Iterator[TaskId]:
    return (TaskId(name, number) for name, numbers in tasks.items() for number in numbers)


def grouped(tasks: set[TaskId]) -> Tasks:
    return {name: frozenset(task.partition for task in tasks if task.subtopology == name) for name, _ in tasks}


class Run:
    """One group, its clients, and the log of its coordinator."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"{seed} streams groups")
        self.topics = Topics()
        self.now_ms = 1
        self.standby_replicas = 0
        self.clients: list[Client] = []
        self.missing: tuple[InternalTopic, ...] = ()
        self.is_quiet = False
        self._config = GroupConfig(streams=lambda _: replace(SETTINGS, num_standby_replicas=self.standby_replicas))
        self._log: list[list[Record]] = []
        self._replicated = 0
        self._appends: deque[int] = deque()
        self._timers: dict[TimerKey, int] = {}
        self._joined = 0
        self.group = self._new_group()

    def _new_group(self) -> Group:
        group = Group("g", self._config)
        group.topics = self.topics
        return group

    # The coordinator.

    def do(self, event: Event) -> None:
        before = 0 if self.group.streams is None else self.group.streams.epoch.epoch
        inbox: deque[Event] = deque((event,))
        while inbox:
            for action in step(self.group, inbox.popleft(), Now(self.now_ms, self.now_ms)):
                self._perform(action, inbox)
        streams = self.group.streams
        assert streams is None or streams.epoch.epoch >= before or not streams.is_stored

    def _perform(self, action: Action, inbox: deque[Event]) -> None:
        match action:
            case Respond(token, outcome):
                assert isinstance(token, Client)
                assert isinstance(outcome, StreamsOutcome)
                self.missing = outcome.missing or self.missing
                self._respond(token, outcome)
            case PersistNewerGroup():
                self._append(action, inbox)
            case PersistTombstones():
                self._log.append(newer_group_records("g", action.newer, 0))
            case ScheduleTimer(key, delay_ms):
                self._timers[key] = self.now_ms + delay_ms
            case CancelTimer(key):
                self._timers.pop(key, None)
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
            self._appends.append(action.append_id)
            return
        self._replicate()
        inbox.append(AppendDone(action.append_id, ErrorCode.NONE))

    def _replicate(self) -> None:
        self._replicated = len(self._log)
        while self._appends:
            error = ErrorCode.REQUEST_TIMED_OUT if self.chance.random() < 0.1 else ErrorCode.NONE
            self.do(AppendDone(self._appends.popleft(), error))

    def _respond(self, client: Client, outcome: StreamsOutcome) -> None:
        if not self.is_quiet and self.chance.random() < 0.05:
            client.is_waiting, client.has_lost = False, True
        elif client.is_alive:
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
            if records:
                header = parse_header(build_batch(records))
                for record in records:
                    playback.record(record, header)
        return next((group for group in playback.groups(self._config) if group is not None), None)

    def check_log(self) -> None:
        """The records are the group."""
        replayed, ours = self.replayed(), self.group.streams
        if ours is None or not ours.is_stored:
            assert replayed is None or replayed.streams is None or replayed.streams.is_empty
            return
        assert replayed is not None
        assert replayed.streams is not None
        assert replayed.streams.values() == ours.values()

    # The clients.

    def check(self) -> None:
        """No two members run a task, and no process has one twice; one that was fenced does not know yet."""
        streams = self.group.streams
        run: dict[TaskId, str] = {}
        in_process: dict[tuple[str, TaskId], str] = {}
        for client in self.clients:
            if not client.is_alive or streams is None or client.member_id not in streams.members:
                continue
            if client.epoch < streams.assignment(client.member_id).previous_epoch:
                continue  # It was fenced and has joined again, and this response is still under way.
            for task in client.running[0]:
                assert run.setdefault(task, client.member_id) == client.member_id, f"{task} is run twice"
            for task in (*client.running[0], *client.running[1]):
                place = client.process_id, task
                assert in_process.setdefault(place, client.member_id) == client.member_id, f"{place} has it twice"
            assert not client.running[0] & client.running[1]
            for task in client.running[0]:
                topic = "lines" if task.subtopology == "0" else "names"
                partition = TopicPartition(topic, task.partition)
                assert streams.assigned_since(client.member_id, partition, self.topics) is not None

    def act(self) -> None:
        """One random event."""
        self.now_ms += self.chance.randrange(1, 200)
        for key in [key for key, due_ms in self._timers.items() if due_ms <= self.now_ms]:
            if self._timers.pop(key, None) is not None:
                self.do(TimerFired(key))
        chance = 1.0 if self.is_quiet else self.chance.random()
        if chance < 0.05:
            self.join()
        elif chance < 0.07 and self.clients:
            self.chance.choice(self.clients).is_leaving = True
        elif chance < 0.09 and self.clients:
            self.chance.choice(self.clients).is_alive = False
        elif chance < 0.11:
            self.change_topics()
        elif chance < 0.13:
            self.move()
        elif chance < 0.14:
            self.do(ExpireOffsets())
        elif chance < 0.15:
            self.standby_replicas = self.chance.randrange(3)
        elif self._appends and (self.is_quiet or chance < 0.5):
            self._replicate()
        if self.missing and (self.is_quiet or self.chance.random() < 0.3):
            topic, *rest = self.missing
            self.missing = tuple(rest)
            if topic.name not in self.topics.counts:
                self.topics.create(topic.name, topic.partitions)
        self.clients = [client for client in self.clients if client.is_alive]
        for client in self.chance.sample(self.clients, len(self.clients)):
            has_to_revoke = client.target is not None and not all(map(set.issubset, client.running, client.target))
            is_due = self.now_ms >= client.beat_ms or has_to_revoke
            if is_due and not client.is_waiting and (self.is_quiet or self.chance.random() < 0.8):
                client.beat_ms = self.now_ms + SETTINGS.heartbeat_interval_ms
                client.is_waiting = True
                self.do(client.request())
                self.check()

    def change_topics(self) -> None:
        """Topics that grow need other internal ones, which an administrator deletes so that they are created anew."""
        name = self.chance.choice(["lines", "names", "words", "counts"])
        if self.chance.random() < 0.5:
            self.topics.grow(name)
        elif name in self.topics.counts and name != "lines":
            self.topics.delete(name)
        elif name in {"lines", "names"}:
            self.topics.create(name, self.chance.randrange(1, 5))

    def repair_topics(self) -> None:
        """The internal topics are deleted, and responses that ask for former ones have arrived."""
        self._replicate()
        self.topics.create("names", 4)
        self.topics.delete("words", "counts")
        self.missing = ()

    def join(self) -> None:
        self._joined += 1
        self.clients.append(Client(f"m{self._joined}", f"process {self.chance.randrange(4)}"))

    def is_settled(self) -> bool:
        """Each task is run, and has as many standby tasks as there are other processes for."""
        streams = self.group.streams
        if streams is None or set(streams.members) != {client.member_id for client in self.clients}:
            return False
        stateful = [TaskId("1", number) for number in range(4)]
        expected = sorted([*stateful, *(TaskId("0", number) for number in range(self.topics.counts["lines"]))])
        run = sorted(task for client in self.clients for task in client.running[0])
        replicas = min(self.standby_replicas, len({client.process_id for client in self.clients}) - 1)
        copies = Counter(task for client in self.clients for task in client.running[1])
        has_copies = copies == Counter({task: replicas for task in stateful if replicas})
        return run == expected and has_copies and streams.state is StreamsGroupState.STABLE


@pytest.mark.parametrize("seed", SEEDS)
def test_one_member_runs_a_task_and_the_records_are_the_group(seed: int) -> None:
    run = Run(seed)
    for number in range(STEPS):
        run.act()
        if number % 20 == 0:
            run.check_log()
    run.is_quiet = True
    run.repair_topics()
    run.clients = [client for client in run.clients if not client.is_leaving][:6]
    if not run.clients:
        run.join()
    for _ in range(2_000):
        run.act()
        if run.is_settled():
            run.check_log()
            return
    raise AssertionError("the group does not settle")
