"""Acknowledgements, share sessions and what the share coordinator stores: the cases that are refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.server.coordination.share_state.state import (
    STATE_BATCHES_MAX,
    Delete,
    Initialize,
    Read,
    Refresh,
    ShareState,
    Snapshot,
    Update,
    Write,
    applied,
    decide,
)
from kctl.server.share_partitions.acknowledging import acknowledge, acknowledgements
from kctl.server.share_partitions.partition import AcquiredRange, LogBatch, ShareLimits, SharePartition, cut_ranges
from kctl.server.share_partitions.sessions import (
    SESSION_PARTITIONS_MAX,
    MemberKey,
    ShareSession,
    ShareSessions,
    TopicIdPartition,
)
from kctl.server.share_partitions.values import (
    DeliveryState,
    StateBatch,
    StateChange,
    StoredState,
    merge_batches,
    merge_neighbours,
)

KEY = MemberKey("g", "m")
LIMITS = ShareLimits(delivery_count_max=2, in_flight_max=100, lock_ms=1_000)


def refused(work: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as refusal:
        work()
    return refusal.value.code


def test_batches_of_a_request_are_checked() -> None:
    wrong: list[list[tuple[int, int, list[int]]]] = [
        [(3, 4, [1]), (1, 2, [1])],
        [(3, 2, [1])],
        [(-1, 2, [1])],
        [(0, 1, [])],
        [(0, 1, [1, 1, 1])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(0, 0, [4])],
    ]
    for batches in wrong:
        assert refused(partial(acknowledgements, batches, may_renew=False)) is ErrorCode.INVALID_REQUEST
    twice = [(0, 2, [1]), (2, 3, [1])]
    assert refused(lambda: acknowledgements(twice, may_renew=False)) is ErrorCode.INVALID_RECORD_STATE
    assert [part[:2] for part in acknowledgements([(0, 3, [1, 1, 2, 1]), (4, 5, [1])], may_renew=False)] == [
        (0, 1),
        (2, 2),
        (3, 5),
    ]


def acquired() -> SharePartition:
    partition = SharePartition(StoredState(1, 0), 0)
    read = [LogBatch(0, 9)]
    partition.acquire("m", read, position=0, records_max=5, is_exact=True, limits=LIMITS, now_ms=0)
    return partition


def test_what_a_member_has_not_acquired_is_refused_and_nothing_has_changed() -> None:
    partition = acquired()
    accept = acknowledgements([(0, 1, [1]), (3, 7, [1])], may_renew=False)
    assert refused(lambda: acknowledge(partition, "m", accept, LIMITS, 0)) is ErrorCode.INVALID_REQUEST
    others = acknowledgements([(0, 1, [1])], may_renew=False)
    assert refused(lambda: acknowledge(partition, "n", others, LIMITS, 0)) is ErrorCode.INVALID_RECORD_STATE
    assert partition.take_write() is None
    assert acknowledge(partition, "m", others, LIMITS, 0)
    assert refused(lambda: acknowledge(partition, "m", others, LIMITS, 0)) is ErrorCode.INVALID_RECORD_STATE


def test_the_start_moves_when_the_acknowledgement_is_stored() -> None:
    partition = acquired()
    acknowledge(partition, "m", acknowledgements([(0, 1, [1])], may_renew=False), LIMITS, 0)
    assert partition.take_write() == StateChange(1, 0, 2, (), delivery_complete_count=0)
    assert partition.start_offset == 0
    partition.write_done(is_stored=False)
    assert partition.start_offset == 0
    assert partition.expire_locks(LIMITS, 1_000)
    assert partition.next_offset(LIMITS) == 0


def test_a_record_is_archived_after_the_last_delivery() -> None:
    partition = acquired()
    assert partition.expire_locks(LIMITS, 1_000)
    read = [LogBatch(0, 9)]
    ranges = partition.acquire("m", read, position=0, records_max=1, is_exact=True, limits=LIMITS, now_ms=1_000)
    assert ranges == [(0, 0, 2)]
    assert partition.release_member("m", LIMITS)
    assert partition.start_offset == 1
    change = partition.take_write()
    assert change is not None
    assert (change.start_offset, change.batches) == (1, (StateBatch(1, 4, DeliveryState.AVAILABLE, 1),))


def test_renewed_locks_last_longer() -> None:
    partition = acquired()
    assert not acknowledge(partition, "m", acknowledgements([(0, 0, [4])], may_renew=True), LIMITS, 900)
    assert partition.expire_locks(LIMITS, 1_000)
    assert partition.next_offset(LIMITS) == 1


def test_sessions_are_refused_out_of_turn_and_beyond_their_number() -> None:
    sessions = ShareSessions(2)
    assert refused(lambda: sessions.resume(KEY, 1, 0)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    sessions.open(KEY, 0, 1_000)
    assert refused(lambda: sessions.resume(KEY, 2, 0)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    sessions.resume(KEY, 1, 0)
    assert refused(lambda: sessions.resume(KEY, 1, 0)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    sessions.open(MemberKey("g", "n"), 0, 1_000)
    assert refused(lambda: sessions.open(MemberKey("g", "o"), 10, 1_000)) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.open(MemberKey("g", "o"), 5_000, 1_000)
    assert len(sessions) == 2
    session = ShareSession()
    most = [TopicIdPartition(UUID(int=1), number) for number in range(SESSION_PARTITIONS_MAX + 1)]
    assert refused(lambda: session.update(most, ())) is ErrorCode.INVALID_REQUEST
    session.update(most[:3], ())
    assert [session.rotated()[0].partition for _ in range(4)] == [0, 1, 2, 0]


def test_states_are_fenced_and_bounded() -> None:
    def process(state: ShareState | None, event: object) -> object:
        return decide(state, event, 0, updates_max=1)  # type: ignore[arg-type]

    change = StateChange(1, 2, 5)
    assert refused(lambda: process(None, Read(0))) is ErrorCode.INVALID_REQUEST
    assert refused(lambda: process(None, Write(change))) is ErrorCode.INVALID_REQUEST
    assert process(None, Delete()) is None
    assert process(None, Refresh()) is None
    state = ShareState(1, 3, leader_epoch=2)
    assert refused(lambda: process(state, Initialize(0, 0))) is ErrorCode.FENCED_STATE_EPOCH
    assert refused(lambda: process(state, Read(1))) is ErrorCode.FENCED_LEADER_EPOCH
    assert process(state, Read(2)) is None
    assert refused(lambda: process(state, Write(StateChange(1, 1, 5)))) is ErrorCode.FENCED_LEADER_EPOCH
    assert refused(lambda: process(state, Write(StateChange(2, 2, 5)))) is ErrorCode.FENCED_STATE_EPOCH
    batches = [StateBatch(number, number, DeliveryState.ACKNOWLEDGED, 1) for number in range(STATE_BATCHES_MAX + 1)]
    for wrong in (batches, batches[:1] * 2, [StateBatch(2, 1, DeliveryState.AVAILABLE, 1)]):
        written = StateChange(1, 2, 5, tuple(wrong))
        assert refused(partial(process, state, Write(written))) is ErrorCode.INVALID_REQUEST
    update = process(state, Write(change))
    assert isinstance(update, Update)
    after = applied(state, update)
    assert after is not None
    assert isinstance(process(after, Write(change)), Snapshot)
    assert applied(after, Update(9, 9, 9, (), 0)) == after, "of another snapshot"


def test_changes_are_merged_as_offset_by_offset() -> None:
    chance = random.Random(3)
    states = [DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED]

    def some() -> list[StateBatch]:
        batches: list[StateBatch] = []
        position = 0
        while position < 30:
            first = position + chance.randrange(3)
            last = first + chance.randrange(4)
            batches.append(StateBatch(first, last, chance.choice(states), chance.randrange(1, 4)))
            position = last + 1
        return batches

    for _ in range(500):
        old, new, start = some(), some(), chance.randrange(20)
        best: dict[int, tuple[int, DeliveryState]] = {}
        for batch in (*old, *new):
            for offset in range(max(batch.first, start), batch.last + 1):
                best[offset] = max(best.get(offset, (0, DeliveryState.AVAILABLE)), (batch.delivery_count, batch.state))
        singles = [StateBatch(offset, offset, state, count) for offset, (count, state) in sorted(best.items())]
        assert merge_batches(old, new, start) == merge_neighbours(singles)


@pytest.mark.parametrize(
    ("starts", "size", "parts"),
    [
        (range(10), 3, [(0, 2), (3, 5), (6, 8), (9, 9)]),
        ((0, 4, 5, 9), 3, [(0, 3), (4, 8), (9, 9)]),
        ((0,), 3, [(0, 9)]),
        (range(10), 10, [(0, 9)]),
        ((), 1, [(0, 9)]),
        ((0, 10, 20), 1, [(0, 9)]),
    ],
    ids=["each", "between", "one batch", "fits", "none", "others"],
)
def test_ranges_are_cut_where_batches_begin(starts: Sequence[int], size: int, parts: list[tuple[int, int]]) -> None:
    cut = cut_ranges([AcquiredRange(0, 9, 2), AcquiredRange(30, 30, 1)], starts, size)
    assert cut == [*(AcquiredRange(first, last, 2) for first, last in parts), AcquiredRange(30, 30, 1)]
