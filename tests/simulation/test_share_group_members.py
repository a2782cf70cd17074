"""The members of a share group by seed: they join, leave, are silent and come back, topics grow, the log refuses
records or is slow, states are begun or not, and the coordinator moves.

Epochs never decrease, and the records in the log are the group.  When the trouble is over, every partition is assigned,
and every member that subscribes to something has a partition.
"""

from __future__ import annotations

import random
from collections import deque
from uuid import UUID

import pytest

from kctl.errors import ErrorCode
from kctl.model import ZERO_UUID
from kctl.records.build import build_batch
from kctl.records.header import Record, parse_header
from kctl.server.coordination.groups.actions import (
    CancelTimer,
    InitializeStates,
    PersistNewerGroup,
    Respond,
    ScheduleTimer,
)
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.events import AppendDone, Event, GroupLoaded, Now, TimerFired, TimerKey
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.newer_records import newer_group_records
from kctl.server.coordination.groups.records import GroupPlayback
from kctl.server.coordination.groups.step import step
from kctl.server.coordination.share_groups.group import NamedPartitions
from kctl.server.coordination.share_groups.requests import (
    ShareGroupSettings,
    ShareHeartbeat,
    ShareOutcome,
    StateOfTopics,
    StatesInitialized,
)
from tests.property.examples import share_of

SEEDS = range(share_of(40))
STEPS = 300
SETTINGS = ShareGroupSettings(
    session_timeout_ms=3_000, heartbeat_interval_ms=500, max_size=5, assignment_interval_ms=200
)
CONFIG = GroupConfig(share=lambda _: SETTINGS)
MEMBERS = "abcdef"


class Topics:
    """state.ClusterTopics that grow."""

    topics_version = 1

    def __init__(self) -> None:
        self.counts = {"orders": 3, "events": 1}
        self._ids = {"orders": UUID(int=1), "events": UUID(int=2)}

    def topic_id(self, topic: str) -> UUID:
        return self._ids.get(topic, ZERO_UUID)

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, known in self._ids.items() if known == topic_id), None)

    def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def partition_racks(self, topic: str) -> list[list[str]]:
        return [[] for _ in range(self.counts[topic])]


class Run:
    """One group, its members, and the log of its coordinator."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 1_000
        self.topics = Topics()
        self.group = self.new_group()
        self.log: list[Record] = []
        self.timers: dict[TimerKey, int] = {}
        self.initializing: list[StateOfTopics] = []
        self.epochs: dict[str, int] = {}
        self.group_epoch = 0
        self.has_faults = True

    def new_group(self) -> Group:
        group = Group("g", CONFIG)
        group.topics = self.topics
        return group

    def run(self, first: Event) -> list[ShareOutcome]:
        """Process the event and what follows; return the responses."""
        outcomes: list[ShareOutcome] = []
        inbox: deque[Event] = deque([first])
        while inbox:
            for action in step(self.group, inbox.popleft(), Now(self.now_ms, self.now_ms)):
                match action:
                    case Respond():
                        assert isinstance(action.outcome, ShareOutcome)
                        outcomes.append(action.outcome)
                    case PersistNewerGroup():
                        inbox.append(self.append(action))
                    case ScheduleTimer():
                        self.timers[action.key] = self.now_ms + action.delay_ms
                    case CancelTimer():
                        self.timers.pop(action.key, None)
                    case InitializeStates():
                        self.initializing.append(action.topics)
                    case _:
                        raise AssertionError(action)
        return outcomes

    def append(self, action: PersistNewerGroup) -> AppendDone:
        fate = self.chance.random() if self.has_faults else 1
        if fate < 0.1:
            return AppendDone(action.append_id, ErrorCode.NOT_ENOUGH_REPLICAS, is_written=False)
        self.log += newer_group_records("g", action.changes, self.now_ms)
        error = ErrorCode.REQUEST_TIMED_OUT if fate < 0.15 else ErrorCode.NONE
        return AppendDone(action.append_id, error, len(self.log))

    def beat(self, member_id: str, epoch: int, names: tuple[str, ...] | None) -> None:
        for outcome in self.run(ShareHeartbeat(member_id=member_id, member_epoch=epoch, topic_names=names)):
            if outcome.error is ErrorCode.NONE and outcome.member_epoch >= 0:
                self.epochs[member_id] = outcome.member_epoch
            elif outcome.error in {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}:
                self.epochs.pop(member_id, None)

    def go_on(self, member_id: str) -> None:
        if member_id in self.epochs:
            self.beat(member_id, self.epochs[member_id], None)
        else:
            self.beat(member_id, 0, self.chance.choice([("orders",), ("events",), ("orders", "events")]))

    def step(self) -> None:
        self.now_ms += self.chance.randrange(300)
        for key, due_ms in list(self.timers.items()):
            if due_ms <= self.now_ms and self.timers.pop(key, None) is not None:
                self.run(TimerFired(key))
        member_id, number = self.chance.choice(MEMBERS), self.chance.random()
        if number < 0.75:
            self.go_on(member_id)
        elif number < 0.85:
            self.initialized()
        elif number < 0.9:
            self.beat(member_id, -1, None)
        elif number < 0.93:
            self.topics.topics_version += 1
            topic = self.chance.choice([*self.topics.counts])
            self.topics.counts[topic] = min(self.topics.counts[topic] + 1, 6)
        elif number < 0.96:
            self.check()
            self.move()

    def initialized(self) -> None:
        """The share coordinator has begun the state of some partitions, or of none."""
        if not self.initializing:
            return
        done = {
            topic_id: NamedPartitions(name, frozenset(number for number in numbers if self.chance.random() < 0.8))
            for topic_id, (name, numbers) in self.initializing.pop().items()
        }
        self.run(StatesInitialized({topic_id: named for topic_id, named in done.items() if named.numbers}))

    def move(self) -> None:
        """Another broker loads the group."""
        self.group = self.loaded()
        self.timers.clear()
        self.initializing.clear()
        self.run(GroupLoaded())

    def loaded(self) -> Group:
        playback = GroupPlayback()
        for record in self.log:
            header = parse_header(build_batch([record]))
            playback.record(record, header)
        groups = [group for group in playback.groups(CONFIG) if group is not None]
        group = groups[0] if groups else self.new_group()
        group.topics = self.topics
        return group

    def check(self) -> None:
        share, stored = self.group.share, self.loaded().share
        if share is None or not share.is_stored:
            assert stored is None
            return
        assert stored is not None
        assert stored.values() == share.values()
        assert share.epoch.epoch >= self.group_epoch
        self.group_epoch = share.epoch.epoch
        assert share.target.epoch <= share.epoch.epoch

    def settle(self) -> None:
        self.has_faults = False
        for _ in range(40):
            self.now_ms += 250
            for member_id in MEMBERS[:4]:
                self.go_on(member_id)
            while self.initializing:
                topics = self.initializing.pop()
                self.run(StatesInitialized(topics))
            for key, due_ms in list(self.timers.items()):
                if due_ms <= self.now_ms and self.timers.pop(key, None) is not None:
                    self.run(TimerFired(key))
        self.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_records_are_the_group_and_all_partitions_are_assigned(seed: int) -> None:
    run = Run(seed)
    for _ in range(STEPS):
        run.step()
    run.settle()
    share = run.group.share
    assert share is not None
    assert set(share.members) == set(MEMBERS[:4])
    wanted = {
        (run.topics.topic_id(name), number) for name in share.topic_counts for number in range(run.topics.counts[name])
    }
    assigned = {
        (topic_id, number)
        for assignment in share.assignments.values()
        for topic_id, numbers in assignment.partitions.items()
        for number in numbers
    }
    assert assigned == wanted
    assert all(assignment.partitions for assignment in share.assignments.values())
    assert {assignment.epoch for assignment in share.assignments.values()} == {share.target.epoch}
