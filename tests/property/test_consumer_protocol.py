"""Members of the consumer protocol (KIP-848) against a coordinator over connections that lose and delay heartbeats.

Goal: no partition is read by two members that the coordinator both has, nothing is committed by one that it has
removed, commits do not go back, and when the trouble ends every partition has a reader.  Method: members' `step`
against a small coordinator in virtual time, which assigns and revokes as Kafka's CurrentAssignmentBuilder; a failure
reports its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kctl.client.consuming.membership.consumer_protocol import JOIN_EPOCH, LEAVE_EPOCH, ConsumerMember, step
from kctl.client.consuming.membership.member import (
    Action,
    CommitResultReceived,
    Disconnected,
    Event,
    Fail,
    GroupHeartbeatResponseReceived,
    HeartbeatDue,
    Left,
    LookUpTopicNames,
    MembershipSettings,
    Phase,
    PollOverdue,
    PollRequested,
    Revoked,
    SendGroupHeartbeat,
    StartReading,
    StopReading,
    TopicsNamed,
)
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.property.examples import examples

TOPIC_IDS = {"t": UUID(int=1), "u": UUID(int=2)}
NAMES = {topic_id: name for name, topic_id in TOPIC_IDS.items()}
COUNTS = {"t": 5, "u": 2}
PARTITIONS = sorted(TopicPartition(topic, number) for topic, count in COUNTS.items() for number in range(count))
TICK_MS = 100
INTERVAL_MS = 500
SESSION_MS = 2_000
REBALANCE_MS = 3_000
CALM_MS = 15_000


@dataclass
class Seat:
    """What the coordinator keeps of a member."""

    instance: str | None
    heard_ms: int
    epoch: int = 0
    previous_epoch: int = 0
    assigned: set[TopicPartition] = field(default_factory=set)
    revoking: set[TopicPartition] = field(default_factory=set)
    revoking_since_ms: int = 0
    owned: set[TopicPartition] = field(default_factory=set)
    sent: set[TopicPartition] | None = None


class Coordinator:
    """The coordinator of one group."""

    def __init__(self) -> None:
        self.epoch = 0
        self.seats: dict[str, Seat] = {}
        self.targets: dict[str, set[TopicPartition]] = {}
        self.committed = dict.fromkeys(PARTITIONS, 0)

    def advance(self, now_ms: int) -> None:
        for member_id, seat in list(self.seats.items()):
            is_late = bool(seat.revoking) and now_ms >= seat.revoking_since_ms + REBALANCE_MS
            if now_ms >= seat.heard_ms + SESSION_MS or is_late:
                self._remove(member_id)

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> ConsumerGroupHeartbeatResponse:
        seat = self.seats.get(request.member_id)
        if request.member_epoch < JOIN_EPOCH:
            if seat is not None and request.member_epoch == LEAVE_EPOCH:
                self._remove(request.member_id)
            elif seat is not None:
                seat.epoch = request.member_epoch
            return ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=request.member_epoch)
        if request.member_epoch == JOIN_EPOCH:
            assert request.topic_partitions == []
            assert request.subscribed_topic_names
            assert request.rebalance_timeout_ms > 0
            namesake = next(
                (key for key, one in self.seats.items() if one.instance and one.instance == request.instance_id), None
            )
            if namesake is not None and namesake != request.member_id:
                if self.seats[namesake].epoch >= 0:
                    return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNRELEASED_INSTANCE_ID)
                self._remove(namesake)
            if seat is None:
                seat = self.seats[request.member_id] = Seat(request.instance_id, now_ms)
                self._assign()
            seat.owned, seat.sent, seat.epoch = set(), None, max(seat.epoch, 0)
        elif seat is None:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        owned = seat.owned if request.topic_partitions is None else named(request.topic_partitions)
        is_repeated = request.member_epoch == seat.previous_epoch and owned <= seat.assigned
        if request.member_epoch not in {seat.epoch, JOIN_EPOCH} and not is_repeated:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        seat.heard_ms, seat.owned = now_ms, owned
        if request.rebalance_timeout_ms != -1:
            seat.sent = None  # A full request.
        self._reconcile(request.member_id, seat, now_ms)
        is_news = seat.sent != seat.assigned
        seat.sent = set(seat.assigned)
        return ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_id=request.member_id,
            member_epoch=seat.epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=Assignment(topic_partitions=by_id(seat.assigned)) if is_news else None,
        )

    def commit(self, member_id: str, epoch: int, offsets: dict[TopicPartition, int]) -> ErrorCode:
        seat = self.seats.get(member_id)
        if seat is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch != seat.epoch:
            return ErrorCode.STALE_MEMBER_EPOCH
        for tp, offset in offsets.items():
            holders = [key for key, one in self.seats.items() if tp in one.assigned | one.revoking]
            assert holders == [member_id], f"{tp} is committed by {member_id} and held by {holders}"
            assert offset >= self.committed[tp], f"{tp}: what is committed goes back"
            self.committed[tp] = offset
        return ErrorCode.NONE

    def _reconcile(self, member_id: str, seat: Seat, now_ms: int) -> None:
        target = self.targets[member_id]
        seat.revoking &= seat.owned
        if seat.revoking:
            return
        lost = seat.assigned - target
        seat.assigned -= lost
        seat.revoking = lost & seat.owned
        seat.revoking_since_ms = now_ms
        if seat.revoking:
            return
        others = [one for key, one in self.seats.items() if key != member_id]
        seat.assigned |= {tp for tp in target if not any(tp in one.assigned | one.revoking for one in others)}
        if seat.epoch != self.epoch:
            seat.previous_epoch, seat.epoch = seat.epoch, self.epoch

    def _remove(self, member_id: str) -> None:
        del self.seats[member_id]
        self._assign()

    def _assign(self) -> None:
        self.epoch += 1
        keys = sorted(self.seats)
        self.targets = {key: set(PARTITIONS[place :: len(keys)]) for place, key in enumerate(keys)}


def named(topics: list[TopicPartitions]) -> set[TopicPartition]:
    return {TopicPartition(NAMES[topic.topic_id], number) for topic in topics for number in topic.partitions}


def by_id(partitions: set[TopicPartition]) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(tp.partition for tp in partitions if tp.topic == name))
        for name, topic_id in TOPIC_IDS.items()
        if any(tp.topic == name for tp in partitions)
    ]


@dataclass
class Reader:
    """A member, what it reads, and the response that is on its way."""

    member: ConsumerMember
    reads: dict[TopicPartition, int] = field(default_factory=dict)
    arriving: list[tuple[int, Callable[[], Event]]] = field(default_factory=list)
    pause_ms: int = 0
    is_alive: bool = True
    failures: list[Fail] = field(default_factory=list)


class Play:
    """Some readers of one group; `chance` loses heartbeats, kills readers, starts new ones."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.coordinator = Coordinator()
        self.readers: list[Reader] = []
        self.now_ms = 0
        self.is_calm = False

    def start(self) -> None:
        number = len(self.readers)
        instance = self.chance.choice((None, None, f"i{number}"))
        settings = MembershipSettings("g", ("t", "u"), instance, rebalance_timeout_ms=REBALANCE_MS, protocol="consumer")
        self.readers.append(Reader(ConsumerMember(settings, f"m{number}-{self.chance.randrange(100)}")))

    def run(self, duration_ms: int) -> None:
        for _ in range(duration_ms // TICK_MS):
            self.now_ms += TICK_MS
            self.coordinator.advance(self.now_ms)
            for reader in [reader for reader in self.readers if reader.is_alive]:
                if not self.is_calm:
                    self._trouble(reader)
                if reader.is_alive:
                    self._turn(reader)
                self._check()
            if not self.is_calm and self.chance.random() < 0.02 and sum(one.is_alive for one in self.readers) < 4:
                self.start()

    def _turn(self, reader: Reader) -> None:
        if reader.pause_ms > 0:
            reader.pause_ms -= TICK_MS
            return
        while reader.arriving and reader.arriving[0][0] <= self.now_ms:
            self._do(reader, reader.arriving.pop(0)[1]())
        for tp in reader.reads:
            reader.reads[tp] += tp not in reader.member.revoking
        self._do(reader, HeartbeatDue())
        if reader.member.phase is Phase.OUTSIDE and not reader.arriving:
            self._do(reader, PollRequested())
        elif reader.member.phase is Phase.REVOKING and (self.is_calm or self.chance.random() < 0.5):
            self._commit(reader)
            if reader.member.phase is Phase.REVOKING:
                for tp in reader.member.revoking:
                    del reader.reads[tp]
                self._do(reader, Revoked())
        elif self.chance.random() < 0.2:
            self._commit(reader)

    def _trouble(self, reader: Reader) -> None:
        luck = self.chance.random()
        if luck < 0.005:
            reader.pause_ms = self.chance.choice((300, 1_500, 5_000))
        elif luck < 0.008:
            reader.is_alive = False
        elif luck < 0.012:
            reader.reads = {}
            for action in step(reader.member, Left(), self.now_ms):
                self._perform(reader, action)
            reader.is_alive = False
        elif luck < 0.015:
            self._do(reader, PollOverdue())

    def _commit(self, reader: Reader) -> None:
        member = reader.member
        if not reader.reads or not member.may_commit:
            return
        code = self.coordinator.commit(member.member_id, member.generation, dict(reader.reads))
        self._do(reader, CommitResultReceived(code, member.generation))

    def _do(self, reader: Reader, event: Event) -> None:
        for action in step(reader.member, event, self.now_ms):
            self._perform(reader, action)
        assert set(reader.reads) == set(reader.member.owned)

    def _perform(self, reader: Reader, action: Action) -> None:
        match action:
            case SendGroupHeartbeat(request):
                self._send(reader, request)
            case LookUpTopicNames(topic_ids):
                known = {} if not self.is_calm and self.chance.random() < 0.3 else NAMES
                self._do(reader, TopicsNamed({key: name for key, name in known.items() if key in topic_ids}))
            case StartReading(partitions):
                assert not reader.reads.keys() & set(partitions)
                reader.reads |= {tp: self.coordinator.committed[tp] for tp in partitions}
            case StopReading():
                reader.reads = {}
            case Fail():
                reader.failures.append(action)
            case _:
                pass

    def _send(self, reader: Reader, request: ConsumerGroupHeartbeatRequest) -> None:
        during = reader.member.phase
        luck = 1.0 if self.is_calm else self.chance.random()
        delay_ms = 0 if self.is_calm else self.chance.choice((0, 100, 300))
        if luck < 0.03:
            reader.arriving.append((self.now_ms + delay_ms, lambda: Disconnected(during)))
            return
        if luck < 0.05:
            response = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
        else:
            response = self.coordinator.heartbeat(request, self.now_ms)
        if luck < 0.08:
            reader.arriving.append((self.now_ms + delay_ms, lambda: Disconnected(during)))
        else:
            received = GroupHeartbeatResponseReceived(response, request)
            reader.arriving.append((self.now_ms + delay_ms, lambda: received))

    def _check(self) -> None:
        """Members that the coordinator has, with their epochs, do not read the same partition."""
        readers: dict[TopicPartition, str] = {}
        for reader in self.readers:
            seat = self.coordinator.seats.get(reader.member.member_id)
            if reader.is_alive and seat is not None and reader.member.generation in {seat.epoch, seat.previous_epoch}:
                for tp in reader.member.owned:
                    other = readers.setdefault(tp, reader.member.member_id)
                    assert other == reader.member.member_id, f"{tp} is read by {other} and {reader.member.member_id}"


@examples(40)
@given(st.integers(0, 1 << 32))
def test_members_share_the_partitions_whatever_is_lost(seed: int) -> None:
    play = Play(Random(seed))
    play.start()
    play.start()
    play.run(40_000)
    play.is_calm = True
    for _ in range(2):  # What was lost last must not be missed, nor a member that joins.
        play.run(CALM_MS)
        alive = [reader for reader in play.readers if reader.is_alive]
        assert not [failure for reader in alive for failure in reader.failures]
        assert sorted(tp for reader in alive for tp in reader.member.owned) == (PARTITIONS if alive else [])
        assert all(reader.member.phase is Phase.STABLE for reader in alive)
        targets = play.coordinator.targets
        assert all(set(reader.member.owned) == targets[reader.member.member_id] for reader in alive)
        play.start()
