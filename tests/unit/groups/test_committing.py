"""OffsetCommit and the ways in which commits go."""

from __future__ import annotations

import pytest

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.server.groups.actions import PersistOffsets, PersistTombstones
from kctl.server.groups.committing import java_length
from kctl.server.groups.events import DeleteGroup, DeleteOffsets, ExpireOffsets, ForgetTopics, Unload
from kctl.server.groups.offsets import OffsetAndMetadata
from kctl.server.groups.states import GroupState
from tests.unit.groups.world import SESSION_MS, GroupWorld

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
RETENTION_MS = 10_080 * 60_000


def committed(world: GroupWorld, tp: TopicPartition = T0) -> int | None:
    value = world.group.offsets.get(tp)
    return None if value is None else value.offset


def test_client_without_a_group_may_store_offsets() -> None:
    world = GroupWorld()
    assert world.answers[world.commit({T0: 5, T1: 6})] == {T0: ErrorCode.NONE, T1: ErrorCode.NONE}
    assert (committed(world), committed(world, T1)) == (5, 6)
    assert world.group.state is GroupState.EMPTY


def test_commit_is_visible_when_it_is_in_the_log() -> None:
    world = GroupWorld(offsets_retention_ms=0)
    world.holds_appends = True
    token = world.commit({T0: 5})
    assert committed(world) is None
    assert world.group.offsets.is_unstable(T0)
    world.finish_append()
    assert committed(world) == 5
    assert not world.group.offsets.is_unstable(T0)
    assert world.answers[token] == {T0: ErrorCode.NONE}


def test_commit_further_in_the_log_wins_whichever_is_confirmed_first() -> None:
    world = GroupWorld()
    world.holds_appends = True
    world.commit({T0: 5})
    world.commit({T0: 6})
    earlier, later = world.group.appends[1], world.group.appends[2]
    world.group.offsets.confirm(later.offsets, 11)  # type: ignore[union-attr]
    world.group.offsets.confirm(earlier.offsets, 10)  # type: ignore[union-attr]
    assert committed(world) == 6


def test_refused_commit_does_not_take_a_later_one_with_it() -> None:
    world = GroupWorld()
    world.holds_appends = True
    world.commit({T0: 5})
    world.commit({T0: 6})
    world.finish_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert committed(world) is None
    world.finish_append()
    assert committed(world) == 6


def test_refused_later_commit_leaves_the_earlier_one() -> None:
    world = GroupWorld()
    world.holds_appends = True
    world.commit({T0: 5})
    world.commit({T0: 6})
    world.finish_append(ErrorCode.NOT_ENOUGH_REPLICAS, index=1)
    world.finish_append()
    assert committed(world) == 5


@pytest.mark.parametrize(
    ("append_error", "answered"),
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
def test_commit_that_the_log_refuses_keeps_the_old_offset(append_error: ErrorCode, answered: ErrorCode) -> None:
    world = GroupWorld()
    world.commit({T0: 5})
    world.append_error = append_error
    assert world.answers[world.commit({T0: 6})] == {T0: answered}
    assert committed(world) == 5
    assert not world.group.offsets.is_unstable(T0), "nobody has to wait for it"


def test_group_whose_only_commit_was_refused_is_none() -> None:
    world = GroupWorld()
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.commit({T0: 5})
    assert world.group.is_vacant


def test_too_much_metadata_refuses_one_partition_only() -> None:
    world = GroupWorld(offset_metadata_max_bytes=3)
    token = world.commit({T0: OffsetAndMetadata(1, metadata="abcd"), T1: OffsetAndMetadata(2, metadata="abc")})
    assert world.answers[token] == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE, T1: ErrorCode.NONE}
    assert (committed(world), committed(world, T1)) == (None, 2)


def test_too_much_metadata_everywhere_writes_nothing() -> None:
    world = GroupWorld(offset_metadata_max_bytes=0)
    token = world.commit({T0: OffsetAndMetadata(1, metadata="a")})
    assert world.answers[token] == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert world.log == []


def test_metadata_is_measured_as_java_does() -> None:
    assert java_length("abc") == 3
    assert java_length("äö") == 2
    assert java_length("\N{GRINNING FACE}") == 2


def test_member_commits_in_its_generation() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    assert world.answers[world.commit({T0: 5}, member_id=a, generation=1)] == {T0: ErrorCode.NONE}


@pytest.mark.parametrize(
    ("member_id", "generation", "error"),
    [
        ("stranger", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a-1", 0, ErrorCode.ILLEGAL_GENERATION),
        ("a-1", -1, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_commit_that_is_not_of_the_generation_is_refused(member_id: str, generation: int, error: ErrorCode) -> None:
    world = GroupWorld()
    world.stable_group("a")
    token = world.commit({T0: 5}, member_id=member_id, generation=generation)
    assert world.answers[token] == {T0: error}
    assert committed(world) is None


def test_fenced_member_cannot_commit() -> None:
    world = GroupWorld()
    world.join(instance="i")
    world.advance(3_000)
    world.sync("i-1")
    world.join(instance="i")
    token = world.commit({T0: 5}, member_id="i-1", generation=1, instance="i")
    assert world.answers[token] == {T0: ErrorCode.FENCED_INSTANCE_ID}


def test_commit_of_a_generation_to_an_empty_group_is_refused() -> None:
    world = GroupWorld()
    token = world.commit({T0: 5}, member_id="a", generation=3)
    assert world.answers[token] == {T0: ErrorCode.UNKNOWN_MEMBER_ID}


def test_member_may_save_its_work_while_joins_are_gathered() -> None:
    world = GroupWorld()
    a, b = world.stable_group("a", "b")
    world.join(a)
    assert world.answers[world.commit({T0: 5}, member_id=b, generation=1)] == {T0: ErrorCode.NONE}


def test_commit_between_join_and_sync_is_told_to_wait() -> None:
    world = GroupWorld()
    world.join(name="a")
    world.advance(3_000)
    token = world.commit({T0: 5}, member_id="a-1", generation=1)
    assert world.answers[token] == {T0: ErrorCode.REBALANCE_IN_PROGRESS}


def test_commit_proves_life() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    world.advance(SESSION_MS - 1)
    world.commit({T0: 5}, member_id=a, generation=1)
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(a) is ErrorCode.NONE


def test_commit_on_its_way_is_answered_although_the_group_moved() -> None:
    world = GroupWorld()
    world.holds_appends = True
    token = world.commit({T0: 5})
    world.do(Unload())
    world.finish_append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.answers[token] == {T0: ErrorCode.NOT_COORDINATOR}


def test_deleted_group_leaves_tombstones() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    world.commit({T0: 5}, member_id=a, generation=1)
    assert world.ask(DeleteGroup) is ErrorCode.NON_EMPTY_GROUP
    world.leave(a)
    assert world.ask(DeleteGroup) is ErrorCode.NONE
    assert world.log[-1] == PersistTombstones((T0,), is_group_gone=True)
    assert world.is_discarded
    assert world.ask(DeleteGroup) is ErrorCode.GROUP_ID_NOT_FOUND


def test_group_that_only_stored_offsets_has_no_record_to_bury() -> None:
    world = GroupWorld()
    world.commit({T0: 5})
    world.ask(DeleteGroup)
    assert world.log[-1] == PersistTombstones((T0,), is_group_gone=False)


def test_offsets_of_an_empty_group_can_be_deleted() -> None:
    world = GroupWorld()
    world.commit({T0: 5, U0: 6})
    outcome = world.ask(DeleteOffsets, (T0, T1))
    assert outcome.partitions == {T0: ErrorCode.NONE, T1: ErrorCode.NONE}
    assert (committed(world), committed(world, U0)) == (None, 6)
    assert world.log[-1] == PersistTombstones((T0,), is_group_gone=False)


def test_offsets_of_topics_that_members_read_are_spared() -> None:
    """KIP-496."""
    world = GroupWorld()
    (a,) = world.stable_group("a")
    world.commit({T0: 5, U0: 6}, member_id=a, generation=1)
    outcome = world.ask(DeleteOffsets, (T0, U0))
    assert outcome.partitions == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, U0: ErrorCode.NONE}
    assert (committed(world), committed(world, U0)) == (5, None)


def test_offsets_are_spared_while_subscriptions_cannot_be_read() -> None:
    world = GroupWorld()
    world.stable_group("a", supports=(("range", b"\x00"),))
    outcome = world.ask(DeleteOffsets, (U0,))
    assert outcome.partitions == {U0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_offsets_of_another_kind_of_group_need_it_empty() -> None:
    world = GroupWorld()
    world.stable_group("a", protocol_type="connect")
    assert world.ask(DeleteOffsets, (T0,)).error is ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_a_deleted_topic_are_forgotten() -> None:
    world = GroupWorld()
    world.commit({T0: 5, U0: 6})
    world.do(ForgetTopics(frozenset({"t"})))
    assert (committed(world), committed(world, U0)) == (None, 6)


def test_commit_on_its_way_when_its_topic_is_deleted_does_not_come_back() -> None:
    world = GroupWorld()
    world.holds_appends = True
    world.commit({T0: 7})
    world.do(ForgetTopics(frozenset({"t"})))
    world.finish_append()
    assert committed(world) is None
    assert PersistTombstones((T0,), is_group_gone=False) in world.log


def test_commit_on_its_way_when_its_group_is_deleted_does_not_come_back() -> None:
    world = GroupWorld()
    world.holds_appends = True
    world.commit({T0: 7})
    world.ask(DeleteGroup)
    world.finish_append()
    assert world.log[-1] == PersistTombstones((T0,), is_group_gone=False)


def test_commit_on_its_way_when_it_is_deleted_gets_its_tombstone() -> None:
    """Its record lies in the log already, and would come back with the next coordinator."""
    world = GroupWorld()
    world.holds_appends = True
    world.commit({T0: 7})
    world.ask(DeleteOffsets, (T0, T1))
    assert world.log[-1] == PersistTombstones((T0,), is_group_gone=False)


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


def test_topics_that_members_read_no_more_expire_by_the_time_of_the_commit() -> None:
    """KIP-211."""
    world = GroupWorld(offsets_retention_ms=1_000)
    (a,) = world.stable_group("a")
    world.commit({T0: 5, U0: 6}, member_id=a, generation=1)
    world.advance(1_000)
    world.do(ExpireOffsets())
    assert (committed(world), committed(world, U0)) == (5, None)


def test_nothing_expires_while_a_group_of_another_kind_has_members() -> None:
    world = GroupWorld(offsets_retention_ms=1_000)
    (a,) = world.stable_group("a", protocol_type="connect")
    world.commit({T0: 5}, member_id=a, generation=1)
    world.advance(1_000)
    world.do(ExpireOffsets())
    assert committed(world) == 5


def test_commit_with_its_own_retention_expires_by_that_alone() -> None:
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


def test_offset_with_a_commit_on_its_way_does_not_expire() -> None:
    world = GroupWorld(offsets_retention_ms=0)
    world.commit({T0: 5})
    world.holds_appends = True
    world.commit({T0: 6})
    world.do(ExpireOffsets())
    assert committed(world) == 5


def test_group_that_nobody_used_is_forgotten_without_a_record() -> None:
    world = GroupWorld()
    world.join(name="a", needs_id=True)
    world.do(ExpireOffsets())
    was_discarded = world.is_discarded
    world.advance(SESSION_MS)
    world.do(ExpireOffsets())
    assert (was_discarded, world.is_discarded) == (False, True)
    assert world.log == []


def test_commits_go_to_the_log_in_one_piece() -> None:
    world = GroupWorld()
    world.commit({T0: 5, T1: 6})
    assert [set(entry.offsets) for entry in world.log if isinstance(entry, PersistOffsets)] == [{T0, T1}]
