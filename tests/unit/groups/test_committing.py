"""OffsetCommit: validation, ordering, expiry and deletion of offsets."""

from __future__ import annotations

import pytest

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.server.coordination.groups.actions import DeleteOffsetsOutcome, GroupState, PersistOffsets, PersistTombstones
from kctl.server.coordination.groups.events import (
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    ForgetTopics,
    TransactionalCommit,
    TransactionCompleted,
    Unload,
)
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.groups.rules.committing import java_length
from tests.rows import for_rows
from tests.unit.groups.world import SESSION_MS, GroupWorld

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
PRODUCER = ProducerIdAndEpoch(7, 0)
RETENTION_MS = 10_080 * 60_000


def committed(world: GroupWorld, tp: TopicPartition = T0) -> int | None:
    value = world.group.offsets.get(tp)
    return None if value is None else value.offset


def test_client_without_a_group_membership_may_commit_offsets() -> None:
    world = GroupWorld()
    assert world.responses[world.commit({T0: 5, T1: 6})] == {T0: ErrorCode.NONE, T1: ErrorCode.NONE}
    assert (committed(world), committed(world, T1)) == (5, 6)
    assert world.group.state is GroupState.EMPTY


def test_commit_becomes_visible_after_its_append() -> None:
    world = GroupWorld(offsets_retention_ms=0)
    world.holds_appends = True
    token = world.commit({T0: 5})
    assert committed(world) is None
    assert world.group.offsets.is_unstable(T0)
    world.finish_append()
    assert committed(world) == 5
    assert not world.group.offsets.is_unstable(T0)
    assert world.responses[token] == {T0: ErrorCode.NONE}


def test_commit_with_the_higher_log_offset_wins_in_any_confirmation_order() -> None:
    world = GroupWorld()
    world.holds_appends = True
    world.commit({T0: 5})
    world.commit({T0: 6})
    earlier, later = world.group.appends[1], world.group.appends[2]
    world.group.offsets.confirm(later.offsets, 11)  # type: ignore[union-attr]
    world.group.offsets.confirm(earlier.offsets, 10)  # type: ignore[union-attr]
    assert committed(world) == 6


def test_failed_commit_does_not_remove_a_later_one() -> None:
    world = GroupWorld()
    world.holds_appends = True
    world.commit({T0: 5})
    world.commit({T0: 6})
    world.finish_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert committed(world) is None
    world.finish_append()
    assert committed(world) == 6


def test_failed_later_commit_keeps_the_earlier_one() -> None:
    world = GroupWorld()
    world.holds_appends = True
    world.commit({T0: 5})
    world.commit({T0: 6})
    world.finish_append(ErrorCode.NOT_ENOUGH_REPLICAS, index=1)
    world.finish_append()
    assert committed(world) == 5


@for_rows(
    "append_error, completed",
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_commit_with_a_failed_append_keeps_the_old_offset(append_error: ErrorCode, completed: ErrorCode) -> None:
    world = GroupWorld()
    world.commit({T0: 5})
    world.append_error = append_error
    assert world.responses[world.commit({T0: 6})] == {T0: completed}
    assert committed(world) == 5
    assert not world.group.offsets.is_unstable(T0), "no fetch has to wait for it"


def test_group_with_only_a_failed_commit_does_not_exist() -> None:
    world = GroupWorld()
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.commit({T0: 5})
    assert world.group.is_vacant


def test_too_much_metadata_refuses_one_partition_only() -> None:
    world = GroupWorld(offset_metadata_max_bytes=3)
    token = world.commit({T0: OffsetAndMetadata(1, metadata="abcd"), T1: OffsetAndMetadata(2, metadata="abc")})
    assert world.responses[token] == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE, T1: ErrorCode.NONE}
    assert (committed(world), committed(world, T1)) == (None, 2)


def test_too_much_metadata_everywhere_writes_nothing() -> None:
    world = GroupWorld(offset_metadata_max_bytes=0)
    token = world.commit({T0: OffsetAndMetadata(1, metadata="a")})
    assert world.responses[token] == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert world.log == []


def test_metadata_length_is_counted_in_utf_16_units_as_in_java() -> None:
    assert java_length("abc") == 3
    assert java_length("äö") == 2
    assert java_length("\N{GRINNING FACE}") == 2


def test_member_commits_in_its_generation() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    assert world.responses[world.commit({T0: 5}, member_id=a, generation=1)] == {T0: ErrorCode.NONE}


@pytest.mark.parametrize(
    ("member_id", "generation", "error"),
    [
        ("unknown-member", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a-1", 0, ErrorCode.ILLEGAL_GENERATION),
        ("a-1", -1, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_commit_that_is_not_of_the_generation_is_refused(member_id: str, generation: int, error: ErrorCode) -> None:
    world = GroupWorld()
    world.stable_group("a")
    token = world.commit({T0: 5}, member_id=member_id, generation=generation)
    assert world.responses[token] == {T0: error}
    assert committed(world) is None


def test_fenced_member_cannot_commit() -> None:
    world = GroupWorld()
    world.join(instance="i")
    world.advance(3_000)
    world.sync("i-1")
    world.join(instance="i")
    token = world.commit({T0: 5}, member_id="i-1", generation=1, instance="i")
    assert world.responses[token] == {T0: ErrorCode.FENCED_INSTANCE_ID}


def test_commit_of_a_generation_to_an_empty_group_is_refused() -> None:
    world = GroupWorld()
    token = world.commit({T0: 5}, member_id="a", generation=3)
    assert world.responses[token] == {T0: ErrorCode.UNKNOWN_MEMBER_ID}


def test_member_may_commit_while_a_rebalance_is_prepared() -> None:
    world = GroupWorld()
    a, b = world.stable_group("a", "b")
    world.join(a)
    assert world.responses[world.commit({T0: 5}, member_id=b, generation=1)] == {T0: ErrorCode.NONE}


def test_commit_between_join_and_sync_gets_rebalance_in_progress() -> None:
    world = GroupWorld()
    world.join(name="a")
    world.advance(3_000)
    token = world.commit({T0: 5}, member_id="a-1", generation=1)
    assert world.responses[token] == {T0: ErrorCode.REBALANCE_IN_PROGRESS}


def test_commit_restarts_the_session_timeout() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    world.advance(SESSION_MS - 1)
    world.commit({T0: 5}, member_id=a, generation=1)
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(a) is ErrorCode.NONE


def test_pending_commit_gets_a_response_after_the_coordinator_moved() -> None:
    world = GroupWorld()
    world.holds_appends = True
    token = world.commit({T0: 5})
    world.do(Unload())
    world.finish_append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.responses[token] == {T0: ErrorCode.NOT_COORDINATOR}


def test_deleted_group_writes_tombstones() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    world.commit({T0: 5}, member_id=a, generation=1)
    assert world.call(DeleteGroup) is ErrorCode.NON_EMPTY_GROUP
    world.leave(a)
    assert world.call(DeleteGroup) is ErrorCode.NONE
    assert world.log[-1] == PersistTombstones((T0,), is_group_gone=True)
    assert world.is_discarded
    assert world.call(DeleteGroup) is ErrorCode.GROUP_ID_NOT_FOUND


def test_deleting_a_group_with_only_offsets_writes_no_group_tombstone() -> None:
    world = GroupWorld()
    world.commit({T0: 5})
    world.call(DeleteGroup)
    assert world.log[-1] == PersistTombstones((T0,), is_group_gone=False)


def test_offsets_of_an_empty_group_can_be_deleted() -> None:
    world = GroupWorld()
    world.commit({T0: 5, U0: 6})
    outcome = world.call(DeleteOffsets, (T0, T1))
    assert outcome.partitions == {T0: ErrorCode.NONE, T1: ErrorCode.NONE}
    assert (committed(world), committed(world, U0)) == (None, 6)
    assert world.log[-1] == PersistTombstones((T0,), is_group_gone=False)


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    """KIP-496."""
    world = GroupWorld()
    (a,) = world.stable_group("a")
    world.commit({T0: 5, U0: 6}, member_id=a, generation=1)
    outcome = world.call(DeleteOffsets, (T0, U0))
    assert outcome.partitions == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, U0: ErrorCode.NONE}
    assert (committed(world), committed(world, U0)) == (5, None)


def test_offsets_are_not_deleted_while_subscriptions_are_unreadable() -> None:
    world = GroupWorld()
    world.stable_group("a", supports=(("range", b"\x00"),))
    outcome = world.call(DeleteOffsets, (U0,))
    assert outcome.partitions == {U0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_offsets_of_non_consumer_groups_are_deleted_only_when_empty() -> None:
    world = GroupWorld()
    world.stable_group("a", protocol_type="connect")
    assert world.call(DeleteOffsets, (T0,)).error is ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_a_deleted_topic_are_removed() -> None:
    world = GroupWorld()
    world.commit({T0: 5, U0: 6})
    world.do(ForgetTopics(frozenset({"t"})))
    assert (committed(world), committed(world, U0)) == (None, 6)


def test_pending_commit_of_a_deleted_topic_is_dropped() -> None:
    world = GroupWorld()
    world.holds_appends = True
    world.commit({T0: 7})
    world.do(ForgetTopics(frozenset({"t"})))
    world.finish_append()
    assert committed(world) is None
    assert PersistTombstones((T0,), is_group_gone=False) in world.log


def test_pending_commit_of_a_deleted_group_is_dropped() -> None:
    world = GroupWorld()
    world.holds_appends = True
    world.commit({T0: 7})
    world.call(DeleteGroup)
    world.finish_append()
    assert world.log[-1] == PersistTombstones((T0,), is_group_gone=False)


def test_pending_commit_of_a_deleted_offset_gets_a_tombstone() -> None:
    """Its record is in the log already and would be loaded by the next coordinator."""
    world = GroupWorld()
    world.holds_appends = True
    world.commit({T0: 7})
    world.call(DeleteOffsets, (T0, T1))
    assert world.log[-1] == PersistTombstones((T0,), is_group_gone=False)


def commit_in_transaction(world: GroupWorld) -> None:
    values = {T0: OffsetAndMetadata(5)}
    outcome = world.call(lambda token: TransactionalCommit(token=token, producer=PRODUCER, offsets=values))
    assert outcome == {T0: ErrorCode.NONE}


@pytest.mark.parametrize("committed", [True, False])
def test_an_open_transaction_keeps_a_group_whose_offsets_are_deleted(committed: bool) -> None:
    """As Apache Kafka's GroupMetadata.hasOffsets; after the marker the group expires like others."""
    world = GroupWorld()
    commit_in_transaction(world)
    assert world.call(DeleteOffsets, (T0,)) == DeleteOffsetsOutcome(ErrorCode.NONE, {T0: ErrorCode.NONE})
    assert world.log[-1] == PersistTombstones((T0,), is_group_gone=False)
    world.do(ForgetTopics(frozenset({"t"})))
    world.do(ExpireOffsets())
    assert not world.is_discarded
    assert world.call(DeleteOffsets, (T0,)).error is ErrorCode.NONE
    world.do(TransactionCompleted(PRODUCER.producer_id, committed))
    assert world.group.offsets.get(T0) is None
    world.do(ExpireOffsets())
    assert world.is_discarded


def test_a_group_with_an_open_transaction_can_be_deleted() -> None:
    world = GroupWorld()
    commit_in_transaction(world)
    assert world.call(DeleteGroup) is ErrorCode.NONE
    assert world.is_discarded


def test_offset_of_a_simple_client_expires_by_the_time_of_the_commit() -> None:
    """KIP-211."""
    world = GroupWorld()
    world.commit({T0: 5})
    world.advance(1_000)
    world.commit({U0: 6})
    world.advance(RETENTION_MS - 1_000)
    world.do(ExpireOffsets())
    assert (committed(world), committed(world, U0)) == (None, 6)
    assert not world.is_discarded
    world.advance(1_000)
    world.do(ExpireOffsets())
    assert world.is_discarded


def test_offsets_of_an_empty_group_expire_by_the_time_it_became_empty() -> None:
    """KIP-211."""
    world = GroupWorld(offsets_retention_ms=SESSION_MS)
    (a,) = world.stable_group("a")
    world.commit({T0: 5}, member_id=a, generation=1)
    world.advance(SESSION_MS - 1)
    world.leave(a)
    world.advance(SESSION_MS - 1)
    world.do(ExpireOffsets())
    assert committed(world) == 5
    world.advance(1)
    world.do(ExpireOffsets())
    assert world.log[-1] == PersistTombstones((T0,), is_group_gone=True)


def test_offsets_of_unsubscribed_topics_expire_by_the_time_of_the_commit() -> None:
    """KIP-211."""
    world = GroupWorld(offsets_retention_ms=1_000)
    (a,) = world.stable_group("a")
    world.commit({T0: 5, U0: 6}, member_id=a, generation=1)
    world.advance(1_000)
    world.do(ExpireOffsets())
    assert (committed(world), committed(world, U0)) == (5, None)


def test_offsets_of_non_consumer_groups_with_members_do_not_expire() -> None:
    world = GroupWorld(offsets_retention_ms=1_000)
    (a,) = world.stable_group("a", protocol_type="connect")
    world.commit({T0: 5}, member_id=a, generation=1)
    world.advance(1_000)
    world.do(ExpireOffsets())
    assert committed(world) == 5


def test_commit_with_an_expire_timestamp_expires_only_by_it() -> None:
    """OffsetCommit v2-v4."""
    world = GroupWorld(offsets_retention_ms=1)
    expire_ms = world.now.wall_ms + 5_000
    world.commit({T0: OffsetAndMetadata(5, commit_timestamp_ms=0, expire_timestamp_ms=expire_ms)})
    world.advance(4_999)
    world.do(ExpireOffsets())
    assert committed(world) == 5
    world.advance(1)
    world.do(ExpireOffsets())
    assert committed(world) is None


def test_offset_with_a_pending_commit_does_not_expire() -> None:
    world = GroupWorld(offsets_retention_ms=0)
    world.commit({T0: 5})
    world.holds_appends = True
    world.commit({T0: 6})
    world.do(ExpireOffsets())
    assert committed(world) == 5


def test_unused_group_is_removed_without_a_tombstone() -> None:
    world = GroupWorld()
    world.join(name="a", needs_id=True)
    world.do(ExpireOffsets())
    was_discarded = world.is_discarded
    world.advance(SESSION_MS)
    world.do(ExpireOffsets())
    assert (was_discarded, world.is_discarded) == (False, True)
    assert world.log == []


def test_offsets_of_one_commit_are_appended_in_one_batch() -> None:
    world = GroupWorld()
    world.commit({T0: 5, T1: 6})
    assert [set(entry.offsets) for entry in world.log if isinstance(entry, PersistOffsets)] == [{T0, T1}]
