"""Group members against the coordinator over connections that lose, delay and break requests.

Goal: no partition is read by two members of one generation, nothing is committed by one that has no say any more, what
is committed goes neither back nor past what was read, and when the trouble ends every partition has a reader.  Method:
members' `step` against the coordinator's `step` in virtual time, with assignors that all members support; a failure
reports its seed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from hypothesis import example, given
from hypothesis import strategies as st

from kctl.client.consuming.assignors import ASSIGNORS
from kctl.client.consuming.membership.member import (
    Action,
    Assign,
    Assigned,
    CommitResultReceived,
    Disconnected,
    Event,
    Fail,
    HeartbeatDue,
    HeartbeatResponseReceived,
    Joined,
    Left,
    LookUpCoordinator,
    Member,
    MembershipSettings,
    PartitionsChanged,
    Phase,
    PollRequested,
    Revoke,
    Revoked,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    StartReading,
    StopReading,
    Synced,
)
from kctl.client.consuming.membership.step import step
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.heartbeat import HeartbeatResponse
from kctl.protocol.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from kctl.protocol.apis.sync_group import SyncGroupResponse
from kctl.server.coordination.groups.actions import JoinOutcome, SyncOutcome
from tests.property.examples import examples
from tests.unit.groups.world import GroupWorld, Token

COUNTS = {"t": 5, "u": 2}
PARTITIONS = sorted(TopicPartition(topic, number) for topic, count in COUNTS.items() for number in range(count))
TICK_MS = 100
LISTS = (
    ("range", "roundrobin"),
    ("sticky",),
    ("cooperative-sticky",),
    ("range", "cooperative-sticky"),
)
"""The assignors that members support; a group with the last two changes from one to the other."""


@dataclass
class Reader:
    """A member, what it reads, and its pending request."""

    name: str
    member: Member
    reads: dict[TopicPartition, int] = field(default_factory=dict)
    """Positions."""
    requested: tuple[Token[Any], Phase] | None = None
    pause_ms: int = 0
    is_alive: bool = True
    failures: list[Fail] = field(default_factory=list)

    @property
    def owner(self) -> str:
        """The owner of what it reads: a static id may pass to another process within a generation (KIP-345)."""
        return self.member.settings.group_instance_id or self.name


class Play:
    """Some readers of one group; `chance` breaks connections, kills readers, starts new ones."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.world = GroupWorld(group_initial_rebalance_delay_ms=chance.choice((0, 100)))
        self.lists = chance.choice([(list_,) for list_ in LISTS] + [LISTS[2:]])
        self.readers: list[Reader] = []
        self.owners: dict[tuple[int, TopicPartition], str] = {}
        self.read_to = dict.fromkeys(PARTITIONS, 0)
        """The highest offset that any member has read."""
        self.committed = dict.fromkeys(PARTITIONS, 0)
        self.twice = 0
        """How many records were read again."""
        self._names = 0

    def start(self) -> None:
        self._names += 1
        instance = self.chance.choice((None, None, f"i{self._names % 3}"))
        if any(r.is_alive and instance and r.member.settings.group_instance_id == instance for r in self.readers):
            instance = None
        assignors = self.chance.choice(self.lists)
        expected = MembershipSettings(
            "g", ("t", "u"), instance, session_timeout_ms=2_000, heartbeat_interval_ms=500, assignors=assignors
        )
        self.readers.append(Reader(f"r{self._names}", Member(expected)))

    @property
    def alive(self) -> list[Reader]:
        return [reader for reader in self.readers if reader.is_alive]

    def run(self, duration_ms: int, *, is_calm: bool) -> None:
        for _ in range(duration_ms // TICK_MS):
            self.world.advance(TICK_MS)
            for reader in self.alive:
                if not is_calm:
                    self._trouble(reader)
                if reader.is_alive:
                    self._turn(reader)
                self._check()
            if not is_calm and len(self.alive) < 4 and self.chance.random() < 0.02:
                self.start()

    def _turn(self, reader: Reader) -> None:
        """What a reader's poll and its heartbeats do every now and then."""
        if reader.pause_ms > 0:
            reader.pause_ms -= TICK_MS
            return
        if reader.member.phase is not Phase.REVOKING:
            self._read(reader)
        if reader.requested is not None:
            token, _ = reader.requested
            if token in self.world.responses:
                reader.requested = None
                self._do(reader, self._completed(token))
            elif self.chance.random() < 0.1:
                self._commit(reader)
            return
        self._do(reader, HeartbeatDue())
        if reader.requested is None and reader.member.phase is Phase.OUTSIDE:
            self._do(reader, PollRequested())
        elif reader.requested is None and reader.member.phase is Phase.REVOKING:
            self._commit(reader)
            if reader.member.phase is Phase.REVOKING:
                for tp in reader.member.revoking:
                    del reader.reads[tp]
                self._do(reader, Revoked())
        elif self.chance.random() < 0.1:
            self._commit(reader)

    def _trouble(self, reader: Reader) -> None:
        luck = self.chance.random()
        if luck < 0.01:
            reader.requested, during = None, reader.requested[1] if reader.requested else reader.member.phase
            self._do(reader, Disconnected(during))
        elif luck < 0.013:
            reader.pause_ms = self.chance.choice((300, 1_500, 5_000))
        elif luck < 0.016:
            reader.is_alive = False
        elif luck < 0.02:
            self._do(reader, Left())
            reader.is_alive = False
        elif luck < 0.022:
            self._do(reader, PartitionsChanged())

    def _read(self, reader: Reader) -> None:
        for tp, position in reader.reads.items():
            self.twice += position < self.read_to[tp]
            reader.reads[tp] = position + 1
            self.read_to[tp] = max(self.read_to[tp], position + 1)

    def _commit(self, reader: Reader) -> None:
        """The records that it has read in a generation."""
        member = reader.member
        is_theirs = {tp for (generation, tp), owner in self.owners.items()
                     if generation == self.world.group.generation and owner != reader.owner}  # fmt: skip
        offsets = dict(reader.reads)
        if not offsets or not member.may_commit:
            return
        token = self.world.commit(
            offsets,
            member_id=member.member_id,
            generation=member.generation,
            instance=member.settings.group_instance_id,
        )
        codes = cast("dict[TopicPartition, ErrorCode]", self.world.responses[token])
        assert not (is_theirs & offsets.keys()) or ErrorCode.NONE not in codes.values()
        for tp, offset in offsets.items():
            if codes[tp] is ErrorCode.NONE:
                assert offset >= self.committed[tp], f"{tp}: what is committed goes back"
                self.committed[tp] = offset
        for code in set(codes.values()):
            self._do(reader, CommitResultReceived(code, member.generation))

    def _do(self, reader: Reader, event: Event) -> None:
        for action in step(reader.member, event, self.world.elapsed_ms):
            self._perform(reader, action)

    def _perform(self, reader: Reader, action: Action) -> None:
        world = self.world
        match action:
            case SendJoin(request):
                joining = world.join(
                    request.member_id,
                    name=reader.name,
                    instance=request.group_instance_id,
                    needs_id=request.group_instance_id is None,
                    session_ms=request.session_timeout_ms,
                    rebalance_ms=5_000,
                    supports=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
                )
                reader.requested = joining, Phase.JOINING
            case SendSync(request):
                syncing = world.sync(
                    request.member_id,
                    generation=request.generation_id,
                    instance=request.group_instance_id,
                    protocol_type=request.protocol_type,
                    protocol_name=request.protocol_name,
                    assignments={assignment.member_id: assignment.assignment for assignment in request.assignments},
                )
                reader.requested = syncing, Phase.SYNCING
            case SendHeartbeat(request):
                code = world.heartbeat(
                    request.member_id, generation=request.generation_id, instance=request.group_instance_id
                )
                response = HeartbeatResponse(error_code=code)
                self._do(reader, HeartbeatResponseReceived(response, request.generation_id))
            case SendLeave(member_id):
                world.leave(member_id)
            case Assign(assignor, members):
                self._do(reader, Assigned(ASSIGNORS[assignor](members, COUNTS)))
            case StartReading(partitions):
                assert not reader.reads.keys() & set(partitions)
                reader.reads |= {tp: self.committed[tp] for tp in partitions}
                for tp in reader.reads:
                    owner = self.owners.setdefault((reader.member.generation, tp), reader.owner)
                    assert owner == reader.owner, f"{tp} of generation {reader.member.generation} has two readers"
            case StopReading():
                reader.reads = {}
            case Fail():
                reader.failures.append(action)
                reader.is_alive = False
            case Revoke() | LookUpCoordinator():
                pass

    def _completed(self, token: Token[Any]) -> Event:
        match self.world.responses[token]:
            case JoinOutcome() as outcome:
                return Joined(
                    JoinGroupResponse(
                        error_code=outcome.error,
                        generation_id=outcome.generation,
                        protocol_name=outcome.protocol_name,
                        leader=outcome.leader,
                        member_id=outcome.member_id,
                        members=[
                            JoinGroupResponseMember(
                                member_id=member.member_id,
                                group_instance_id=member.group_instance_id,
                                metadata=member.metadata,
                            )
                            for member in outcome.members
                        ],
                    )
                )
            case SyncOutcome() as outcome:
                return Synced(SyncGroupResponse(error_code=outcome.error, assignment=outcome.assignment))
            case other:
                raise AssertionError(other)

    def _check(self) -> None:
        reading = Counter((r.member.generation, tp) for r in self.alive if r.member.is_in_generation for tp in r.reads)
        assert all(count == 1 for count in reading.values())
        assert all(set(r.reads) == set(r.member.owned) for r in self.alive)


@examples(30)
@given(st.integers(0, 1 << 32))
@example(147376)  # A static member was replaced while it had to revoke a partition, and no other member got that.
def test_members_share_partitions_despite_faults_and_read_every_record_once(seed: int) -> None:
    chance = Random(seed)
    play = Play(chance)
    for _ in range(chance.randint(1, 4)):
        play.start()
    play.run(30_000, is_calm=False)
    if not play.alive:
        play.start()
    play.run(15_000, is_calm=True)
    assert {reader.member.phase for reader in play.alive} == {Phase.STABLE}
    assert sorted(tp for reader in play.alive for tp in reader.reads) == PARTITIONS
    play.twice = 0
    play.start()
    play.run(5_000, is_calm=True)
    assert play.twice == 0, "a member commits its offsets before it revokes a partition"
    assert sorted(tp for reader in play.alive for tp in reader.reads) == PARTITIONS
    assert len(play.alive) > len(PARTITIONS) or all(reader.reads for reader in play.alive), "each has partitions"
    fenced = [fail.error.code for reader in play.readers for fail in reader.failures]
    assert set(fenced) <= {ErrorCode.FENCED_INSTANCE_ID}
