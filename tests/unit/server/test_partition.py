"""Roles, in-sync replicas and the high watermark of one partition, with a log that has only offsets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.leader_and_isr import LeaderAndIsrPartitionState
from kctl.server.replication.follower.rules import UNDEFINED, truncation
from kctl.server.replication.partition import Partition

LAG_MS = 1_000


class Ends:
    """The part of a log that a partition uses."""

    def __init__(self, start: int = 0, end: int = 0) -> None:
        self.log_start_offset = start
        self.log_end_offset = end
        self.epochs: list[tuple[int, int]] = []

    @property
    def settled_end_offset(self) -> int:
        return self.log_end_offset

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        self.epochs.append((epoch, start_offset))

    def last_stable_offset(self, high_watermark: int) -> int:
        return high_watermark


def state(leader: int, epoch: int, isr: list[int], replicas: list[int]) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=isr,
        partition_epoch=epoch,
        replicas=replicas,
    )


def led(end: int, isr: list[int], replicas: list[int] | None = None) -> tuple[Partition, Any]:
    log: Any = Ends(end=end)
    partition = Partition(TopicPartition("t", 0), 0, log, lag_time_max_ms=LAG_MS)
    partition.apply(state(0, 1, isr, replicas or isr), 0)
    return partition, log


def test_a_leader_records_its_epoch_before_any_append() -> None:
    """KIP-101: followers find the divergence from this leader by it."""
    _, log = led(7, [0, 1])
    assert log.epochs == [(1, 7)]


def test_an_epoch_that_is_not_newer_is_refused() -> None:
    partition, _ = led(0, [0])
    with pytest.raises(ApiError) as refused:
        partition.apply(state(1, 1, [1], [0, 1]), 0)
    assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
    assert partition.is_leader


def test_without_followers_the_high_watermark_is_the_log_end() -> None:
    partition, log = led(3, [0])
    assert partition.high_watermark == 3
    log.log_end_offset = 9
    assert partition.advance_high_watermark(0)
    assert partition.high_watermark == 9


def test_the_high_watermark_waits_for_the_slowest_in_sync_replica() -> None:
    partition, _ = led(10, [0, 1, 2])
    assert partition.high_watermark == 0
    partition.record_fetch(1, 10, 0, 0)
    assert partition.high_watermark == 0
    assert partition.record_fetch(2, 4, 0, 0)
    assert partition.high_watermark == 4
    assert partition.record_fetch(2, 10, 0, 0)
    assert partition.high_watermark == 10


def test_out_of_sync_replicas_do_not_hold_the_high_watermark_back_unless_just_caught_up() -> None:
    partition, log = led(10, [0], [0, 1])
    log.log_end_offset = 20
    partition.advance_high_watermark(0)
    assert partition.high_watermark == 20
    partition.record_fetch(1, 20, 0, 5_000)
    log.log_end_offset = 30
    partition.advance_high_watermark(5_000 + LAG_MS)
    assert partition.high_watermark == 20
    partition.advance_high_watermark(5_001 + LAG_MS)
    assert partition.high_watermark == 30


def test_a_replica_joining_the_isr_counts_until_the_outcome_is_known() -> None:
    partition, log = led(10, [0], [0, 1])
    partition.record_fetch(1, 10, 0, 0)
    partition.pending_isr = (0, 1)
    log.log_end_offset = 20
    partition.advance_high_watermark(1_000_000)
    assert partition.high_watermark == 10


def test_a_follower_lags_when_it_was_not_at_the_end_for_too_long() -> None:
    partition, log = led(10, [0, 1])
    partition.record_fetch(1, 10, 0, 100)
    log.log_end_offset = 11
    assert partition.lagging(100 + LAG_MS) == set()
    assert partition.lagging(101 + LAG_MS) == {1}
    partition.record_fetch(1, 11, 0, 102 + LAG_MS)
    assert partition.lagging(10 * LAG_MS) == set()


def test_a_follower_that_reaches_where_the_end_was_counts_as_caught_up_then() -> None:
    """Under steady load no follower is at the current end; reaching the end of the last fetch is enough."""
    partition, log = led(10, [0, 1])
    for second in range(10):
        partition.record_fetch(1, log.log_end_offset - 1 if second == 0 else log.log_end_offset, 0, second * LAG_MS)
        log.log_end_offset += 5
    assert partition.lagging(10 * LAG_MS) == set()


def test_a_follower_joins_the_isr_with_all_committed_records_of_this_epoch() -> None:
    partition, _ = led(10, [0], [0, 1])
    partition.record_fetch(1, 9, 0, 0)
    assert not partition.may_join(1)
    partition.record_fetch(1, 10, 0, 0)
    assert partition.may_join(1)
    assert not partition.may_join(2)


@pytest.mark.parametrize(("epoch", "code"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_requests_with_another_leader_epoch_are_refused(epoch: int, code: ErrorCode) -> None:
    """KIP-320."""
    partition, _ = led(0, [0])
    with pytest.raises(ApiError) as refused:
        partition.check_leader(epoch)
    assert refused.value.code is code
    partition.check_leader(1)
    partition.check_leader(-1)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 5), st.just(0)),
            st.tuples(st.just("fetch"), st.integers(1, 3), st.integers(0, 40)),
        ),
        max_size=40,
    )
)
def test_the_high_watermark_never_goes_back_nor_past_an_in_sync_replica(history: list[tuple[str, int, int]]) -> None:
    partition, log = led(0, [0, 1, 2], [0, 1, 2, 3])
    reached = {1: 0, 2: 0}
    before = 0
    for now_ms, (kind, number, offset) in enumerate(history):
        if kind == "append":
            log.log_end_offset += number
            partition.advance_high_watermark(now_ms)
        elif offset <= log.log_end_offset:
            if number in reached:
                reached[number] = max(reached[number], offset)
            partition.record_fetch(number, reached.get(number, offset), 0, now_ms)
        assert before <= partition.high_watermark <= min(log.log_end_offset, *reached.values())
        before = partition.high_watermark


def cut(**response: int) -> tuple[int, bool]:
    known = {"own_epoch": 1, "own_end_offset": 15, "log_end_offset": 15, "high_watermark": 8}
    return tuple(truncation(**{**known, **response}))  # type: ignore[return-value]


def test_a_follower_truncates_records_that_the_new_leader_lacks() -> None:
    """KIP-101: the leader's epoch 1 ended at 12; this log continued to 15 in it."""
    assert cut(leader_epoch=1, leader_end_offset=12) == (12, True)


def test_a_lagging_follower_keeps_records_above_its_high_watermark() -> None:
    """KIP-101, scenario 1: truncating to the high watermark would lose acknowledged records."""
    assert cut(leader_epoch=1, leader_end_offset=20) == (15, True)


def test_truncation_repeats_when_the_local_log_lacks_the_epoch() -> None:
    """KIP-279."""
    assert cut(leader_epoch=1, leader_end_offset=12, own_epoch=0, own_end_offset=10) == (10, False)


def test_without_leader_epochs_a_follower_truncates_to_its_high_watermark() -> None:
    assert cut(leader_epoch=UNDEFINED, leader_end_offset=UNDEFINED) == (8, True)


def test_partition_applies_any_object_with_the_leader_and_isr_fields() -> None:
    partition, _ = led(0, [0])
    newer: Any = SimpleNamespace(
        leader=2,
        leader_epoch=5,
        isr=[2],
        partition_epoch=3,
        replicas=[0, 2],
        adding_replicas=[0],
        removing_replicas=[],
        controller_epoch=2,
    )
    was_reassigning = partition.is_reassigning
    partition.apply(newer, 0)
    assert (was_reassigning, partition.is_reassigning) == (False, True)
    assert (partition.leader, partition.is_leader, partition.partition_epoch) == (2, False, 3)


class Watching:
    """A watcher that counts how often it was asked whether it still needs notifications."""

    asked = 0

    def __init__(self, *, is_open: bool = True) -> None:
        self._is_open = is_open
        self.notified = 0

    @property
    def is_watching(self) -> bool:
        Watching.asked += 1
        return self._is_open

    def moved(self) -> bool:
        self.notified += 1
        return False

    def high_watermark_moved(self) -> bool:
        return self.moved()


def test_thousands_of_watchers_are_added_without_a_search_for_each() -> None:
    partition, _ = led(7, [0])
    Watching.asked = 0
    watchers = [Watching() for _ in range(2_000)]
    for watcher in watchers:
        partition.watchers.add(watcher)
    assert Watching.asked < 2 * len(watchers)
    partition.notify()
    assert {watcher.notified for watcher in watchers} == {1}


def test_watchers_that_have_gone_are_removed() -> None:
    partition, _ = led(7, [0])
    partition.watchers.add(staying := Watching())
    for _ in range(2_000):
        partition.watchers.add(Watching(is_open=False))
    assert len(partition.watchers.watching) <= 10
    partition.notify()
    assert staying.notified == 1
