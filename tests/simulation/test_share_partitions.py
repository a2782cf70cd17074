"""A share-partition by seed: members fetch, acknowledge, stop and are slow, writes are refused, lost or late, leaders
change while writes of the former one are under way, and the log is cut, compacted and extended.

A record is acquired by one member at a time, and not more often than the delivery limit.  One whose acknowledgement was
confirmed is never handed out again.  When the trouble is over, every record was acknowledged or archived for a reason.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.records.batch import iterate_records
from kctl.records.build import build_batch
from kctl.records.header import parse_header
from kctl.server.coordination.share_state.records import SharePlayback, state_record
from kctl.server.coordination.share_state.state import (
    Change,
    Event,
    Initialize,
    Read,
    ShareState,
    Write,
    applied,
    decide,
)
from kctl.server.share_partitions.acknowledging import (
    Acknowledgement,
    AcknowledgeType,
    acknowledge,
    acknowledgements,
)
from kctl.server.share_partitions.partition import LogBatch, ShareLimits, SharePartition
from kctl.server.share_partitions.values import NO_OFFSET, ShareKey, StateChange, StoredState
from tests.property.examples import share_of

SEEDS = range(share_of(60))
STEPS = 250
LIMITS = ShareLimits(delivery_count_max=3, in_flight_max=40, lock_ms=1_000)
KEY = ShareKey("group", UUID(int=1), 0)
ACCEPT, RELEASE, REJECT, RENEW, GAP = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
    AcknowledgeType.GAP,
)


@dataclass
class Coordinator:
    """The share coordinator: its state, and the records from which it is loaded."""

    state: ShareState | None = None
    changes: list[Change] = field(default_factory=list)

    def process(self, event: Event) -> ShareState | None:
        change = decide(self.state, event, 0, updates_max=7)
        if change is not None:
            self.changes.append(change)
            self.state = applied(self.state, change)
        return self.state

    def reload(self) -> None:
        playback = SharePlayback()
        for offset, change in enumerate(self.changes):
            batch = build_batch([state_record(KEY, change, 0)], base_offset=offset)
            header = parse_header(batch)
            for record in iterate_records(batch, header):
                playback.record(record, header)
        loaded = dict(playback.states())
        assert loaded[KEY].state == self.state
        self.state = loaded[KEY].state


@dataclass(eq=False)
class Leader:
    """A leader, which may not know yet that there is another one."""

    partition: SharePartition
    write: StateChange | None = None
    staged: list[dict[int, AcknowledgeType]] = field(default_factory=list)
    writing: list[dict[int, AcknowledgeType]] = field(default_factory=list)


class Run:
    """One share-partition, its members, its leaders and its coordinator."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 0
        self.end = 0
        self.log_start = 0
        self.batches: list[LogBatch] = []
        self.coordinator = Coordinator()
        self.coordinator.process(Initialize(1, 0))
        self.leader_epoch = 0
        self.leader = self.elect()
        self.former: list[Leader] = []
        self.late: list[StateChange] = []
        self.held: dict[str, dict[int, int]] = {}
        """The records of each member, with their locks' ends."""
        self.deliveries: Counter[int] = Counter()
        self.confirmed: set[int] = set()
        self.maybe_done: set[int] = set()
        """Records whose acknowledgement was not confirmed, or which were rejected."""

    def elect(self) -> Leader:
        self.leader_epoch += 1
        state = self.coordinator.process(Read(self.leader_epoch))
        assert state is not None
        stored = StoredState(state.state_epoch, state.start_offset, state.batches)
        return Leader(SharePartition(stored, self.leader_epoch))

    def step(self) -> None:
        self.now_ms += self.chance.randrange(100)
        actions = [self.produce, self.fetch, self.fetch, self.answer, self.answer, self.write, self.write, self.expire]
        rare = [self.move, self.cut, self.leave, self.late_write, self.coordinator.reload]
        self.chance.choice(actions if self.chance.random() < 0.9 else rare)()
        self.check()

    def produce(self) -> None:
        for _ in range(self.chance.randrange(4)):
            first = self.end + (self.chance.randrange(1, 4) if self.chance.random() < 0.1 else 0)
            last = first + self.chance.randrange(1, 8)
            self.batches.append(LogBatch(first, last, is_hidden=self.chance.random() < 0.1))
            self.end = last + 1

    def fetch(self) -> None:
        member = self.chance.choice("abc")
        partition = self.leader.partition
        partition.move_start(self.log_start)
        offset = partition.next_offset(LIMITS)
        if offset is None or offset >= self.end:
            return
        read = [batch for batch in self.batches if batch.last >= offset][: self.chance.randrange(1, 5)]
        most, is_exact = self.chance.randrange(1, 15), self.chance.random() < 0.5
        ranges = partition.acquire(
            member, read, position=offset, records_max=most, is_exact=is_exact, limits=LIMITS, now_ms=self.now_ms
        )
        count = sum(part.last - part.first + 1 for part in ranges)
        assert count <= most + (0 if is_exact else 7)
        for part in ranges:
            for number in range(part.first, part.last + 1):
                assert number not in self.confirmed, f"{number} was acknowledged"
                assert not any(batch.first <= number <= batch.last and batch.is_hidden for batch in self.batches)
                assert any(batch.first <= number <= batch.last for batch in self.batches)
                for records in self.held.values():
                    # Another member may still believe that it has it, after its lock has expired.
                    assert records.pop(number, 0) <= self.now_ms
                self.deliveries[number] += 1
                assert part.delivery_count <= LIMITS.delivery_count_max
                self.held.setdefault(member, {})[number] = self.now_ms + LIMITS.lock_ms

    def answer(self) -> None:
        """A member acknowledges some of what it has, as single records or as ranges."""
        member = self.chance.choice("abc")
        mine = sorted(self.held.get(member, {}))
        if not mine:
            return
        some = mine[: self.chance.randrange(1, len(mine) + 1)]
        kinds = {number: self.chance.choice([ACCEPT, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW, GAP]) for number in some}
        wanted = acknowledgements(((number, number, [kind]) for number, kind in kinds.items()), may_renew=True)
        partition = self.leader.partition
        before = [(span.first, span.last, span.state, span.becomes) for span in partition.spans]
        if not self.is_accepted(member, wanted):
            assert before == [(span.first, span.last, span.state, span.becomes) for span in partition.spans]
            for number in some:
                del self.held[member][number]
            return
        for number, kind in kinds.items():
            if kind is RENEW:
                self.held[member][number] = self.now_ms + LIMITS.lock_ms
            else:
                del self.held[member][number]
                if kind is not RELEASE:
                    self.maybe_done.add(number)
        self.leader.staged.append({number: kind for number, kind in kinds.items() if kind is not RENEW})

    def is_accepted(self, member: str, wanted: list[Acknowledgement]) -> bool:
        """Whether the leader accepts the acknowledgements: the locks may have expired, or be of another leader."""
        try:
            acknowledge(self.leader.partition, member, wanted, LIMITS, self.now_ms)
        except ApiError:
            return False
        return True

    def write(self) -> None:
        """Begins the next write, or ends the one that is under way."""
        leader = self.leader
        if leader.write is None:
            leader.write = leader.partition.take_write()
            if leader.write is not None:
                leader.writing, leader.staged = leader.staged, []
            return
        outcome = self.chance.choice(["stored"] * 7 + ["refused", "unknown", "late"])
        if outcome == "late":
            self.late.append(leader.write)
        elif outcome != "refused":
            self.coordinator.process(Write(leader.write))
        self.end_write(leader, is_stored=outcome == "stored")

    def end_write(self, leader: Leader, *, is_stored: bool) -> None:
        leader.write = None
        leader.partition.write_done(is_stored=is_stored)
        for kinds in leader.writing:
            if is_stored:
                self.confirmed.update(number for number, kind in kinds.items() if kind is ACCEPT)
        leader.writing = []

    def late_write(self) -> None:
        """A write that has failed for its leader arrives after later ones; that of a former leader is refused."""
        if self.late:
            change = self.late.pop()
            if change.leader_epoch == self.leader_epoch:
                self.coordinator.process(Write(change))
        if not self.former:
            return
        leader = self.former.pop()
        if leader.write is not None:
            with pytest.raises(ApiError) as refusal:
                self.coordinator.process(Write(leader.write))
            assert refusal.value.code is ErrorCode.FENCED_LEADER_EPOCH
            self.end_write(leader, is_stored=False)

    def move(self) -> None:
        """Another leader reads the state; locks are not stored, so that all that members have is available."""
        self.former.append(self.leader)
        self.leader = self.elect()
        self.held.clear()

    def expire(self) -> None:
        self.leader.partition.expire_locks(LIMITS, self.now_ms)
        for member, records in self.held.items():
            self.held[member] = {number: end for number, end in records.items() if end > self.now_ms}

    def leave(self) -> None:
        member = self.chance.choice("abc")
        self.leader.partition.release_member(member, LIMITS)
        self.held.pop(member, None)

    def cut(self) -> None:
        self.log_start = max(self.log_start, self.leader.partition.start_offset - self.chance.randrange(5))
        self.batches = [batch for batch in self.batches if batch.last >= self.log_start]

    def check(self) -> None:
        partition = self.leader.partition
        position = partition.start_offset
        for span in partition.spans:
            assert span.first == position <= span.last
            position = span.last + 1
        assert position == partition.end_offset
        assert len(partition.spans) <= 2 * LIMITS.in_flight_max + 20
        assert partition.in_flight <= LIMITS.in_flight_max + 8

    def settle(self) -> None:
        """Members accept all that is left."""
        for _ in range(2_000):
            self.now_ms += 50
            self.expire()
            self.fetch()
            for member in list(self.held):
                kinds = dict.fromkeys(sorted(self.held.pop(member)), ACCEPT)
                wanted = acknowledgements(((number, number, [kind]) for number, kind in kinds.items()), may_renew=False)
                if self.is_accepted(member, wanted):
                    self.leader.staged.append(kinds)
            for _ in range(2):
                if self.leader.write is None:
                    self.write()
                else:
                    self.coordinator.process(Write(self.leader.write))
                    self.end_write(self.leader, is_stored=True)
            if self.leader.partition.start_offset >= self.end and self.leader.write is None:
                return
        raise AssertionError(f"stuck: {self.leader.partition.spans}")


@pytest.mark.parametrize("seed", SEEDS)
def test_no_record_is_lost_or_acknowledged_twice(seed: int) -> None:
    run = Run(seed)
    for _ in range(STEPS):
        run.step()
    run.settle()
    records = {
        number
        for batch in run.batches
        if not batch.is_hidden
        for number in range(max(batch.first, run.log_start), batch.last + 1)
    }
    exhausted = {number for number, count in run.deliveries.items() if count >= LIMITS.delivery_count_max}
    lost = records - run.confirmed - run.maybe_done - exhausted
    assert not lost, f"seed {seed}: {sorted(lost)}"
    state = run.coordinator.state
    assert state is not None
    assert state.start_offset in {NO_OFFSET, run.leader.partition.start_offset}
    assert state.batches == ()
