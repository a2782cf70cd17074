"""Positions are compared with the history in the leader's log (KIP-320)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.client.consuming.positions import (
    Divergence,
    EpochEnd,
    LogTruncated,
    Position,
    Unchecked,
    check_positions,
    compare,
    is_suspect,
)
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.metadata import MetadataRequest
from kctl.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.unit.client.calls import call
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.transports_without_pauses import NoPauseBlockingTransport

ORDERS = TopicPartition("orders", 0)
OFFSET_FOR_LEADER_EPOCH = 23


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2) as started:
        yield started


def batch(count: int) -> bytes:
    return build_batch([Record(0, 1_000, None, b"value")] * count)


def checked(cluster: FakeCluster, positions: dict[TopicPartition, Position]) -> dict[TopicPartition, Any]:
    return call(cluster, lambda client: check_positions(client, positions), NoPauseBlockingTransport)


# A log is a list of epochs, one for each record; a replica also knows the epoch that it leads with.
Log = list[int]


def epoch_end(log: Log, current: int, requested: int) -> EpochEnd:
    """Kafka's LeaderEpochFileCache.endOffsetFor of a leader with this log."""
    starts = {epoch: log.index(epoch) for epoch in dict.fromkeys(log)} | ({} if current in log else {current: len(log)})
    if requested == current:
        return EpochEnd(current, len(log))
    above = [start for epoch, start in starts.items() if epoch > requested]
    if not above:
        return EpochEnd(-1, -1)
    return EpochEnd(max((epoch for epoch in starts if epoch <= requested), default=requested), min(above))


ELECTIONS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans(), st.integers(0, 4)), max_size=8)
"""The replica that is elected, how many records it writes, whether the others follow, how far a reader stays behind."""


@given(elections=ELECTIONS, final=st.integers(0, 2))
def test_exactly_the_lost_histories_are_found(elections: list[tuple[int, int, bool, int]], final: int) -> None:
    """Unclean elections among three replicas in any order, and a reader of any of their logs."""
    logs: list[Log] = [[], [], []]
    histories: list[Log] = [[]]
    for epoch, (leader, count, is_followed, behind) in enumerate(elections):
        logs[leader] += [epoch] * count
        if is_followed:
            logs = [list(logs[leader]) for _ in logs]
        histories.append(logs[leader][: max(0, len(logs[leader]) - behind)])
    current, epoch = logs[final], len(elections)
    for read in filter(None, histories):
        offset = len(read)
        for position in (Position(offset, read[-1], is_of_record=True), Position(offset, read[-1])):
            found = epoch_end(current, epoch, position.leader_epoch)
            before = current[offset - 1] if offset <= len(current) else None
            found_divergence = compare(ORDERS, position, found, before)
            is_kept = current[:offset] == read
            if position.is_of_record:
                assert (found_divergence is None) == is_kept, (read, current, found)
            elif is_kept:
                assert found_divergence is None, (read, current, found)
            if found_divergence is not None and found_divergence.end_offset is not None:
                end = found_divergence.end_offset
                assert end < offset
                assert current[:end] == read[:end] or found.leader_epoch < position.leader_epoch


def test_answers_of_leaders() -> None:
    rows: list[tuple[Position, EpochEnd, int | None, Any]] = [
        (Position(150, 3), EpochEnd(3, 150), None, "valid"),
        (Position(150, 3), EpochEnd(3, 400), None, "valid"),
        (Position(150, 3), EpochEnd(3, 149), None, (149, 3)),
        (Position(150, 3), EpochEnd(2, 50), None, (50, 2)),
        (Position(150, 3), EpochEnd(-1, -1), None, (None, -1)),
        (Position(0, 3), EpochEnd(-1, -1), None, (None, -1)),
        (Position(150, 3), EpochEnd(-1, 150, has_epoch=False), None, "valid"),
        (Position(150, 3), EpochEnd(-1, 149, has_epoch=False), None, (149, -1)),
        # The log lacks the epoch: what matters is whose record is before the position.
        (Position(150, 3), EpochEnd(2, 160), 2, (None, -1)),
        (Position(150, 3), EpochEnd(2, 160), 3, "valid"),
        (Position(150, 3), EpochEnd(2, 160), None, "valid"),
        (Position(150, 3), EpochEnd(2, 150), 2, "valid"),
        (Position(150, 3, is_of_record=True), EpochEnd(2, 150), 2, (None, -1)),
        (Position(150, 3, is_of_record=True), EpochEnd(2, 150), None, "valid"),
        (Position(0, 3), EpochEnd(2, 160), None, "valid"),
    ]
    for position, found, before, expected in rows:
        divergence = compare(ORDERS, position, found, before)
        result = "valid" if divergence is None else (divergence.end_offset, divergence.leader_epoch)
        assert result == expected, (position, found, before)
        assert before is None or is_suspect(position, found) or result == "valid", (position, found)


def test_leaders_are_asked_about_all_partitions_at_once(cluster: FakeCluster) -> None:
    for partition in cluster.create("orders", 8):
        partition.append(batch(50))
        partition.append(batch(100))
    truncated = cluster.topics["orders"][3]
    truncated.elect(leader=0, end=50)
    truncated.append(batch(150))
    tps = [TopicPartition("orders", number) for number in range(8)]
    outcomes = checked(cluster, dict.fromkeys(tps, Position(150, 0)))
    divergence = Divergence(tps[3], Position(150, 0), 50, 0)
    assert outcomes == {tp: divergence if tp.partition == 3 else None for tp in tps}
    assert "offsets 50 to 149 (leader epoch 0)" in str(LogTruncated([divergence]))
    assert len(cluster.requested(OffsetForLeaderEpochRequest)) == 2  # one for each leader


def test_log_that_lacks_the_epoch_is_read_before_the_position(cluster: FakeCluster) -> None:
    """The first leader is elected again: it has other records at the offsets that the second one wrote and lost."""
    (partition,) = cluster.create("orders")
    partition.append(batch(50))
    partition.append(batch(50))
    partition.elect(leader=0)
    partition.epochs[-1] = (2, 100)
    partition.append(batch(10))
    read_of_second_leader = Position(100, 1, is_of_record=True)
    assert checked(cluster, {ORDERS: read_of_second_leader}) == {
        ORDERS: Divergence(ORDERS, read_of_second_leader, None)
    }
    # The epoch of a commit can be that of a leader which wrote nothing.
    assert checked(cluster, {ORDERS: Position(100, 1)}) == {ORDERS: None}
    partition.start = 100
    assert checked(cluster, {ORDERS: read_of_second_leader}) == {ORDERS: None}


def test_positions_that_cannot_be_checked() -> None:
    with FakeCluster() as cluster:
        cluster.create("orders")
        assert isinstance(checked(cluster, {ORDERS: Position(5)})[ORDERS], Unchecked)
        assert cluster.requests == []
        for version in range(5):
            cluster.versions[OFFSET_FOR_LEADER_EPOCH] = (0, version)
            assert isinstance(checked(cluster, {ORDERS: Position(5, 0)})[ORDERS], Divergence), version
        cluster.versions.pop(OFFSET_FOR_LEADER_EPOCH)
        cluster.intercept(OffsetForLeaderEpochRequest, lambda _: None)
        assert "does not support OffsetForLeaderEpoch" in str(checked(cluster, {ORDERS: Position(5, 0)})[ORDERS])


def test_change_of_leaders_is_waited_for(cluster: FakeCluster) -> None:
    """The metadata has an epoch that the leader does not know, then one that is old."""
    (partition,) = cluster.create("orders")
    partition.append(batch(5))
    partition.elect(leader=1)
    stale = iter([5, 0])

    def metadata(request: Any) -> Any:
        response = cluster._metadata(0, request)
        for topic in response.topics:
            topic.partitions[0].leader_epoch = next(stale, 1)
        return response

    cluster.intercept(MetadataRequest, metadata)
    assert checked(cluster, {ORDERS: Position(5, 0)}) == {ORDERS: None}
    requested = [request for _, request in cluster.requested(OffsetForLeaderEpochRequest)]
    assert [request.topics[0].partitions[0].current_leader_epoch for request in requested] == [5, 0, 1]


def test_error_of_one_partition_is_its_outcome(cluster: FakeCluster) -> None:
    cluster.create("orders")
    other = TopicPartition("missing", 0)
    outcomes = checked(cluster, {ORDERS: Position(0, 0), other: Position(1, 0)})
    assert outcomes[ORDERS] is None
    assert isinstance(outcomes[other], ApiError)
    assert outcomes[other].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
