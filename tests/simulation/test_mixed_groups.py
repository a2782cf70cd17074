"""Groups with members of the classic and of the consumer protocol by seed: they are converted in both directions.

Members of both protocols join, leave, are killed and start again with the other protocol; responses are lost, topics
grow, the log refuses records or forgets those that are not replicated, and the coordinator moves.  A partition is used
by one member at a time, the records in the log are the group, and when the trouble is over every partition has a member
that uses it, whatever protocols are left.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from kctl.errors import ErrorCode
from kctl.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kctl.records.build import build_batch
from kctl.records.header import Record, parse_header
from kctl.server.coordination.consumer_groups.requests import ConsumerGroupSettings, HeartbeatOutcome, HeartbeatRequest
from kctl.server.coordination.consumer_groups.state import Partitions
from kctl.server.coordination.groups.actions import (
    Action,
    CancelTimer,
    Discard,
    GroupState,
    JoinOutcome,
    LeaveOutcome,
    Outcome,
    PersistGroup,
    PersistNewerGroup,
    PersistTombstones,
    Respond,
    ScheduleTimer,
    SyncOutcome,
)
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.events import (
    AppendDone,
    Event,
    ExpireOffsets,
    GroupLoaded,
    Heartbeat,
    JoinRequest,
    Leaver,
    LeaveRequest,
    Now,
    SyncRequest,
    TimerFired,
    TimerKey,
)
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.newer_records import newer_group_records
from kctl.server.coordination.groups.records import GroupPlayback, group_record, tombstones
from kctl.server.coordination.groups.step import step
from tests.property.examples import share_of
from tests.simulation.test_consumer_groups import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS, Topics

SEEDS = range(share_of(30))
STEPS = 400
POLICIES = ("bidirectional", "bidirectional", "bidirectional", "upgrade", "downgrade", "disabled")
LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
FENCED = (*LOST, ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID)


class GrowingTopics(Topics):
    """Topics that are not replaced: members of the classic protocol could not tell one from the other."""

    def grow(self, chance: random.Random) -> None:
        """Adds partitions, or creates a topic."""
        self.topics_version += 1
        topic = chance.choice(["orders", "events", "events.more"])
        self.set_count(topic, min(self.counts.get(topic, 0) + 1, 8))


Used = set[tuple[str, int]]
Request = HeartbeatRequest | JoinRequest | SyncRequest | Heartbeat | LeaveRequest


@dataclass(eq=False)
class Call:
    """A request and the client that waits for its response."""

    client: Client
    request: Request
    is_over: bool = False


@dataclass(eq=False)
class Client:
    """A consumer as it sees itself; what it uses, it has been assigned and has not given up."""

    name: str
    instance_id: str | None
    topics: tuple[str, ...]
    is_classic: bool
    is_eager: bool = False
    member_id: str = ""
    epoch: int = 0
    """The epoch or generation; 0 if it has to join."""
    using: Used = field(default_factory=set)
    target: Used | None = None
    joined: JoinOutcome | None = None
    """The classic protocol: what it has to sync."""
    has_to_join: bool = True
    is_leaving: bool = False
    is_alive: bool = True
    beat_ms: int = 0
    call: Call | None = None
    has_lost: bool = True
    seen_version: int = 0
    """The classic protocol: the topics with which it joined last; when they change, it joins again."""

    def next_event(self, ids: Topics) -> Request:
        """Return the next request."""
        if self.joined is None and self.seen_version != ids.topics_version:
            self.seen_version, self.has_to_join = ids.topics_version, True
        return self._classic_event() if self.is_classic else self._heartbeat(ids)

    def _classic_event(self) -> Request:
        token = self
        if self.is_leaving:
            return LeaveRequest(token, (Leaver(self.member_id, self.instance_id),))
        if self.joined is not None:
            assignments = assign_ranges(self.joined) if self.joined.leader == self.member_id else {}
            return SyncRequest(
                token=token,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                generation=self.joined.generation,
                protocol_type="consumer",
                protocol_name=self.joined.protocol_name,
                assignments=assignments,
            )
        if self.has_to_join or self.epoch == 0:
            if self.is_eager or not self.member_id:
                self.using = set()
            return JoinRequest(
                token=token,
                member_id=self.member_id,
                fresh_member_id=f"{self.name}-{self.beat_ms}" if not self.member_id else "",
                group_instance_id=self.instance_id,
                requires_known_member_id=self.instance_id is None,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                protocol_type="consumer",
                protocols=(("range", self._subscription()),),
            )
        return Heartbeat(token, self.member_id, self.instance_id, self.epoch)

    def _subscription(self) -> bytes:
        owned = [] if self.is_eager else named(self.using)
        return encode_subscription(ConsumerProtocolSubscription(topics=list(self.topics), owned_partitions=owned), 1)

    def _heartbeat(self, ids: Topics) -> HeartbeatRequest:
        if self.target is not None:
            self.using &= self.target
        owned: dict[UUID, set[int]] = {}
        for topic, number in self.using:
            owned.setdefault(ids.topic_id(topic), set()).add(number)
        self.member_id = self.member_id or f"{self.name}-{self.beat_ms}"
        is_full = self.epoch == 0 or self.has_lost
        return HeartbeatRequest(
            token=self,
            member_id=self.member_id,
            member_epoch=-1 if self.is_leaving else self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
            owned={} if self.epoch == 0 else {topic_id: frozenset(numbers) for topic_id, numbers in owned.items()},
            topic_names=self.topics if is_full else None,
        )

    def hear(self, outcome: Outcome, ids: Topics) -> None:
        """Process a response."""
        if self.is_leaving:
            self.is_alive, self.using = False, set()
            return
        match outcome:
            case JoinOutcome():
                self._hear_join(outcome)
            case SyncOutcome():
                self._hear_sync(outcome)
            case HeartbeatOutcome():
                self._hear_heartbeat(outcome, ids)
            case ErrorCode.NONE:
                pass
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self.has_to_join = True
            case ErrorCode():
                self._start_again(outcome)
            case _:
                raise AssertionError(outcome)

    def _start_again(self, error: ErrorCode) -> None:
        self.joined, self.has_to_join = None, True
        if error in FENCED or error is ErrorCode.ILLEGAL_GENERATION:
            self.epoch, self.using, self.target = 0, set(), None
        if error in FENCED:
            self.member_id = ""

    def _hear_join(self, outcome: JoinOutcome) -> None:
        if outcome.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = outcome.member_id
        elif outcome.error is not ErrorCode.NONE:
            self._start_again(outcome.error)
        else:
            self.member_id, self.joined = outcome.member_id, outcome

    def _hear_sync(self, outcome: SyncOutcome) -> None:
        joined, self.joined = self.joined, None
        if outcome.error is not ErrorCode.NONE or joined is None:
            self._start_again(outcome.error)
            return
        self.epoch = joined.generation
        assignment = decode_assignment(outcome.assignment) if outcome.assignment else None
        target = set(flat(assignment.assigned_partitions)) if assignment is not None else set()
        # What was taken away is given up, and then the member joins again, as cooperative assignors do.
        self.has_to_join = bool(self.using - target)
        self.using = target

    def _hear_heartbeat(self, outcome: HeartbeatOutcome, ids: Topics) -> None:
        if outcome.error in FENCED:
            self.epoch, self.using, self.target, self.has_lost = 0, set(), None, True
        elif outcome.error is not ErrorCode.NONE:
            self.has_lost = True
        else:
            self.epoch = outcome.member_epoch
            self.has_lost = False
            if outcome.assignment is not None:
                self.target = set(by_name(outcome.assignment, ids))
            if self.target is not None and self.using <= self.target:
                self.using = set(self.target)


def named(using: Used) -> list[TopicPartitions]:
    """Return partitions as members of the classic protocol send them."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(using):
        topics.setdefault(topic, []).append(number)
    return [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]


def flat(partitions: list[TopicPartitions]) -> Iterator[tuple[str, int]]:
    return ((topic.topic, number) for topic in partitions for number in topic.partitions)


def by_name(partitions: Partitions, ids: Topics) -> Iterator[tuple[str, int]]:
    for topic_id, numbers in partitions.items():
        name = ids.topic_name(topic_id)
        if name is not None:
            yield from ((name, number) for number in numbers)


COUNTS: dict[str, int] = {}
"""The partitions that leaders of the classic protocol know."""


def assign_ranges(joined: JoinOutcome) -> dict[str, bytes]:
    """Return an assignment that gives what others still own to nobody, as cooperative assignors do."""
    subscriptions = {member.member_id: decode_subscription(member.metadata) for member in joined.members}
    owners = {
        partition: member_id
        for member_id, subscription in subscriptions.items()
        for partition in flat(subscription.owned_partitions)
    }
    given: dict[str, Used] = {member_id: set() for member_id in subscriptions}
    for topic in sorted({topic for subscription in subscriptions.values() for topic in subscription.topics}):
        subscribers = sorted(name for name, subscription in subscriptions.items() if topic in subscription.topics)
        for number in range(COUNTS.get(topic, 0)):
            member_id = subscribers[number % len(subscribers)]
            if owners.get((topic, number), member_id) == member_id:
                given[member_id].add((topic, number))
    return {
        member_id: encode_assignment(ConsumerProtocolAssignment(assigned_partitions=named(used)), 1)
        for member_id, used in given.items()
    }


class Run:
    """One group, its clients, and the log of its coordinator."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"{seed} mixed groups")
        self.policy = POLICIES[seed % len(POLICIES)]
        consumer = ConsumerGroupSettings(
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            assignment_interval_ms=300,
            max_size=6,
            migration_policy=self.policy,
        )
        self.config = GroupConfig(consumer=consumer, group_initial_rebalance_delay_ms=100)
        self.topics = GrowingTopics()
        self.now_ms = 0
        self.clients: list[Client] = []
        self.is_quiet = False
        self.upgrades = self.downgrades = 0
        self._log: list[list[Record]] = []
        self._replicated = 0
        self._appends: deque[int] = deque()
        self._timers: dict[TimerKey, int] = {}
        self._joined = 0
        self.group = self._new_group()

    def _new_group(self) -> Group:
        group = Group("g", self.config)
        group.topics = self.topics
        return group

    # The coordinator.

    def do(self, event: Event) -> None:
        inbox: deque[Event] = deque((event,))
        while inbox:
            for action in step(self.group, inbox.popleft(), Now(self.now_ms, self.now_ms + 1)):
                self._perform(action, inbox)
        assert self.group.newer is None or self.group.state in {GroupState.EMPTY, GroupState.DEAD}

    def _perform(self, action: Action, inbox: deque[Event]) -> None:
        match action:
            case Respond(token, outcome):
                assert isinstance(token, Call)
                self._respond(token, outcome)
            case PersistNewerGroup():
                self.upgrades += action.deletes_classic
                self.downgrades += action.classic is not None
                records = tombstones("g", (), is_group_gone=action.deletes_classic, timestamp_ms=0)
                records += newer_group_records("g", action.changes, 0)
                if action.classic is not None:
                    records.append(group_record("g", action.classic, 0))
                self._append(action.append_id, records, inbox)
            case PersistGroup():
                self._append(action.append_id, [group_record("g", action.snapshot, 0)], inbox)
            case PersistTombstones():
                gone = tombstones("g", (), is_group_gone=action.is_group_gone, timestamp_ms=0)
                self._log.append(gone + newer_group_records("g", action.newer, 0))
            case ScheduleTimer(key, delay_ms):
                self._timers[key] = self.now_ms + delay_ms
            case CancelTimer(key):
                self._timers.pop(key, None)
            case Discard():
                self.group = self._new_group()
                self._timers.clear()
            case _:
                raise AssertionError(action)

    def _append(self, append_id: int, records: list[Record], inbox: deque[Event]) -> None:
        chance = 1.0 if self.is_quiet else self.chance.random()
        if chance < 0.05:
            inbox.append(AppendDone(append_id, ErrorCode.NOT_ENOUGH_REPLICAS, is_written=False))
            return
        self._log.append(records)
        self._appends.append(append_id)
        if chance >= 0.4:
            self._replicated = len(self._log)
            inbox.extend(AppendDone(done, ErrorCode.NONE) for done in self._appends)
            self._appends.clear()

    def _replicate(self) -> None:
        self._replicated = len(self._log)
        while self._appends:
            error = ErrorCode.REQUEST_TIMED_OUT if self.chance.random() < 0.1 else ErrorCode.NONE
            self.do(AppendDone(self._appends.popleft(), error))

    def _respond(self, call: Call, outcome: Outcome) -> None:
        assert not call.is_over, f"{call.request} is answered twice"
        call.is_over = True
        client = call.client
        if client.call is not call or not client.is_alive:
            return
        client.call = None
        if not self.is_quiet and self.chance.random() < 0.05:
            self._lose(client)
            return
        if isinstance(outcome, LeaveOutcome):
            outcome = outcome.leavers[0] if outcome.leavers else outcome.error
        client.hear(outcome, self.topics)

    def _lose(self, client: Client) -> None:
        """The response is lost; the client repeats its request, or joins again."""
        client.has_lost = True
        if client.is_classic:
            client.joined, client.has_to_join = None, True

    def move(self) -> None:
        """Another broker loads the group, which may not have what was not replicated."""
        self.check_log()
        if self.chance.random() < 0.5:
            self._replicated = len(self._log)
        del self._log[self._replicated :]
        self._appends.clear()
        self._timers.clear()
        for client in self.clients:
            if client.call is not None:
                client.call = None
                self._lose(client)
        self.group = self.replayed() or self._new_group()
        self.group.topics = self.topics
        self.do(GroupLoaded())

    def replayed(self) -> Group | None:
        playback = GroupPlayback()
        for records in self._log:
            header = parse_header(build_batch(records))
            for record in records:
                playback.record(record, header)
        return next((group for group in playback.groups(self.config) if group is not None), None)

    def check_log(self) -> None:
        """The records are the group: of the same type, with the same values or generation."""
        replayed, ours = self.replayed(), self.group
        if ours.consumer is not None and ours.consumer.is_stored:
            assert replayed is not None
            assert replayed.consumer is not None
            assert list(replayed.consumer.values()) == list(ours.consumer.values())
        elif replayed is not None:
            assert replayed.consumer is None or replayed.consumer.is_empty
            if replayed.consumer is None and ours.state is GroupState.STABLE:
                assert replayed.generation == ours.generation
                # A static member that was replaced, when nobody knows whether the log has it, is the old one here.
                dynamic = {name for name, member in ours.members.items() if not member.is_static}
                assert dynamic == {name for name, member in replayed.members.items() if not member.is_static}

    # The clients.

    def check(self) -> None:
        """No two members use a partition, but those that the coordinator has removed and that do not know yet."""
        used: dict[tuple[str, int], str] = {}
        for client in self.clients:
            if client.is_alive and self._is_member(client):
                for partition in client.using:
                    assert used.setdefault(partition, client.name) == client.name, f"{partition} is used twice"

    def _is_member(self, client: Client) -> bool:
        consumer = self.group.consumer
        if consumer is None:
            # A member that has not joined the next generation yet uses what it had in the last one.
            return client.member_id in self.group.members and client.epoch == self.group.generation
        if client.member_id not in consumer.members:
            return False
        assignment = consumer.assignment(client.member_id)
        return client.epoch >= assignment.previous_epoch and client.is_classic == consumer.is_classic(client.member_id)

    def act(self) -> None:
        """One random event."""
        self.now_ms += self.chance.randrange(1, 200)
        for key in [key for key, due_ms in self._timers.items() if due_ms <= self.now_ms]:
            if self._timers.pop(key, None) is not None:
                self.do(TimerFired(key))
        chance = 1.0 if self.is_quiet else self.chance.random()
        if chance < 0.06:
            self._join()
        elif chance < 0.10 and self.clients:
            self.chance.choice(self.clients).is_leaving = True
        elif chance < 0.12 and self.clients:
            self.chance.choice(self.clients).is_alive = False
        elif chance < 0.13:
            self.topics.grow(self.chance)
        elif chance < 0.15:
            self.move()
        elif chance < 0.16:
            self.do(ExpireOffsets())
        elif self._appends and (self.is_quiet or chance < 0.5):
            self._replicate()
        COUNTS.clear()
        COUNTS.update(self.topics.counts)
        self.clients = [client for client in self.clients if client.is_alive]
        for client in self.chance.sample(self.clients, len(self.clients)):
            self._let_speak(client)

    def _let_speak(self, client: Client) -> None:
        is_due = self.now_ms >= client.beat_ms or client.joined is not None or client.has_to_join
        is_due |= client.target is not None and client.using > client.target
        if not is_due or client.call is not None or not (self.is_quiet or self.chance.random() < 0.8):
            return
        client.beat_ms = self.now_ms + HEARTBEAT_MS
        event = client.next_event(self.topics)
        client.call = Call(client, event)
        self.do(replace(event, token=client.call))
        self.check()

    def _join(self) -> None:
        self._joined += 1
        self.clients.append(
            Client(
                f"m{self._joined}",
                self.chance.choice([None, None, None, "static"]),
                self.chance.choice((("orders",), ("orders", "events"))),
                is_classic=self.chance.random() < 0.5,
                is_eager=self.chance.random() < 0.5,
            )
        )

    def is_settled(self) -> bool:
        """Every partition of the subscribed topics is used by one member."""
        if any(client.epoch == 0 or client.has_to_join for client in self.clients if client.is_classic):
            return False
        expected = {
            (topic, number)
            for topic in {topic for client in self.clients for topic in client.topics}
            for number in range(self.topics.partition_count(topic) or 0)
        }
        used = [partition for client in self.clients for partition in client.using]
        return sorted(used) == sorted(expected) and self.group.state_name == "Stable"


@pytest.mark.parametrize("seed", SEEDS)
def test_members_of_both_protocols_share_the_partitions(seed: int) -> None:
    run = Run(seed)
    for number in range(STEPS):
        run.act()
        if number % 20 == 0:
            run.check_log()
    run.is_quiet = True
    kept = [client for client in run.clients if client.instance_id is None and not client.is_leaving]
    if run.policy != "bidirectional":
        # Members of the other protocol may be refused for good.
        kept = [client for client in kept if client.is_classic == kept[0].is_classic]
    run.clients = kept[:5] or [Client("last", None, ("orders",), is_classic=True)]
    for _ in range(2_000):
        run.act()
        if run.is_settled():
            run.check_log()
            return
    raise AssertionError("the group does not settle")


def test_groups_are_converted_in_both_directions() -> None:
    upgrades = downgrades = 0
    for seed in range(3):
        run = Run(seed)
        for _ in range(STEPS):
            run.act()
        upgrades += run.upgrades
        downgrades += run.downgrades
    assert upgrades
    assert downgrades
