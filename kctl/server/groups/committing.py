"""Commits, and the ways in which committed offsets go: deleted, forgotten with their topic, expired."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.server.groups.actions import (
    Action,
    Answer,
    DeleteOffsetsOutcome,
    Discard,
    ForgetTransaction,
    PersistOffsets,
    PersistTombstones,
)
from kctl.server.groups.events import (
    UNKNOWN_MEMBER,
    CommitRequest,
    DeleteGroup,
    DeleteOffsets,
    ForgetTopics,
    Now,
    TransactionalCommit,
)
from kctl.server.groups.group import Group
from kctl.server.groups.offsets import OffsetAndMetadata
from kctl.server.groups.pending_appends import CommitAppend
from kctl.server.groups.sessions import expect_heartbeat
from kctl.server.groups.states import GroupState


def commit(group: Group, event: CommitRequest, now: Now, out: list[Action]) -> None:
    """Stages the commits and sends them to the log; too much metadata refuses one partition, not the others."""
    error = _commit_error(group, event)
    if error is not ErrorCode.NONE:
        out.append(Answer(event.token, dict.fromkeys(event.offsets, error)))
        return
    member = group.members.get(event.member_id)
    if member is not None:
        expect_heartbeat(member, member.session_timeout_ms, now, out)
    accepted, refused = _sorted_by_size(group, event.offsets)
    if not accepted:
        out.append(Answer(event.token, dict.fromkeys(refused, ErrorCode.OFFSET_METADATA_TOO_LARGE)))
        return
    group.offsets.stage(accepted)
    append_id = group.remember_append(CommitAppend(event.token, accepted, refused))
    out.append(PersistOffsets(append_id, accepted))


def commit_in_transaction(group: Group, event: TransactionalCommit, out: list[Action]) -> None:
    """The same inside of a transaction: the commits stay invisible until its marker, and are no sign of life."""
    error = _transactional_commit_error(group, event)
    if error is not ErrorCode.NONE:
        out.append(Answer(event.token, dict.fromkeys(event.offsets, error)))
        return
    accepted, refused = _sorted_by_size(group, event.offsets)
    if not accepted:
        out.append(Answer(event.token, dict.fromkeys(refused, ErrorCode.OFFSET_METADATA_TOO_LARGE)))
        return
    producer_id = event.producer.producer_id
    group.offsets.stage_transaction(producer_id, accepted)
    append_id = group.remember_append(CommitAppend(event.token, accepted, refused, producer_id))
    out.append(PersistOffsets(append_id, accepted, event.producer))


def commit_stored(group: Group, append: CommitAppend, error: ErrorCode, base_offset: int, out: list[Action]) -> None:
    """The commits are in the log, or were refused; outside of a transaction they are visible now."""
    offsets, producer_id = group.offsets, append.producer_id
    match error, producer_id:
        case ErrorCode.NONE, None:
            offsets.confirm(append.offsets, base_offset)
        case ErrorCode.NONE, int():
            offsets.confirm_transaction(producer_id, append.offsets, base_offset)
        case _, None:
            offsets.reject(append.offsets)
        case _, int():
            offsets.reject_transaction(producer_id, append.offsets)
            if producer_id not in offsets.open_transactions:
                out.append(ForgetTransaction(producer_id))
    outcome = dict.fromkeys(append.offsets, error)
    outcome.update(dict.fromkeys(append.refused, ErrorCode.OFFSET_METADATA_TOO_LARGE))
    out.append(Answer(append.token, outcome))


def delete_group(group: Group, event: DeleteGroup, now: Now, out: list[Action]) -> None:
    """Only a group without members can be deleted."""
    if group.state is GroupState.DEAD:
        out.append(Answer(event.token, ErrorCode.GROUP_ID_NOT_FOUND))
    elif group.state is not GroupState.EMPTY:
        out.append(Answer(event.token, ErrorCode.NON_EMPTY_GROUP))
    else:
        removed = group.offsets.remove(group.offsets.known())
        _bury(group, removed, now, out)
        out.append(Answer(event.token, ErrorCode.NONE))


def delete_offsets(group: Group, event: DeleteOffsets, now: Now, out: list[Action]) -> None:
    """Offsets of topics that members read now are spared; groups of other types must be empty.  KIP-496."""
    if group.state is GroupState.DEAD:
        out.append(Answer(event.token, DeleteOffsetsOutcome(ErrorCode.GROUP_ID_NOT_FOUND, {})))
        return
    if group.state is not GroupState.EMPTY and not group.is_consumer_group:
        out.append(Answer(event.token, DeleteOffsetsOutcome(ErrorCode.NON_EMPTY_GROUP, {})))
        return
    is_empty = group.state is GroupState.EMPTY
    errors = {
        tp: ErrorCode.NONE if is_empty or not group.is_subscribed_to(tp.topic) else ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        for tp in event.partitions
    }
    _drop(group, (tp for tp, error in errors.items() if error is ErrorCode.NONE), now, out)
    out.append(Answer(event.token, DeleteOffsetsOutcome(ErrorCode.NONE, errors)))


def forget_topics(group: Group, event: ForgetTopics, now: Now, out: list[Action]) -> None:
    """A topic of the same name, created later, starts without commits."""
    forgotten = [tp for tp in group.offsets.known() if tp.topic in event.topics]
    if forgotten:
        _drop(group, forgotten, now, out)


def expire_offsets(group: Group, now: Now, out: list[Action]) -> None:
    """Drops what is too old, and the group with it when nothing is left."""
    _drop(group, _expired(group, now), now, out)


def java_length(text: str) -> int:
    """Kafka measures metadata in UTF-16 code units, whatever the property's name says."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _commit_error(group: Group, event: CommitRequest) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if group.is_fenced(event.member_id, event.group_instance_id):
        return ErrorCode.FENCED_INSTANCE_ID
    if event.generation < 0 and group.state is GroupState.EMPTY:
        # A client that assigns partitions by itself and only stores its offsets here.
        return ErrorCode.NONE
    if event.member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    # While a rebalance is being prepared members may still save what they did; heartbeats tell them to join.
    return ErrorCode.NONE


def _transactional_commit_error(group: Group, event: TransactionalCommit) -> ErrorCode:
    """KIP-447: a member of an older generation must not commit for partitions that another one reads by now."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if group.is_fenced(event.member_id, event.group_instance_id):
        return ErrorCode.FENCED_INSTANCE_ID
    if event.member_id != UNKNOWN_MEMBER and event.member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if 0 <= event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE


def _sorted_by_size(
    group: Group, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> tuple[dict[TopicPartition, OffsetAndMetadata], tuple[TopicPartition, ...]]:
    """What may go to the log, and the partitions whose metadata is too large."""
    size_max = group.config.offset_metadata_max_bytes
    accepted = {tp: value for tp, value in offsets.items() if java_length(value.metadata) <= size_max}
    return accepted, tuple(tp for tp in offsets if tp not in accepted)


def _expired(group: Group, now: Now) -> list[TopicPartition]:
    """KIP-211: from when the retention counts, and what is spared."""
    kept_topics: frozenset[str] = frozenset()
    empty_since_ms: int | None = None
    if group.protocol_type is None:
        pass
    elif group.state is GroupState.EMPTY:
        empty_since_ms = group.state_timestamp_ms if group.state_timestamp_ms >= 0 else None
    elif group.is_consumer_group and group.state is GroupState.STABLE and group.subscribed_topics is not None:
        kept_topics = group.subscribed_topics
    else:
        return []
    return group.offsets.expired(
        now_ms=now.wall_ms,
        retention_ms=group.config.offsets_retention_ms,
        empty_since_ms=empty_since_ms,
        kept_topics=kept_topics,
    )


def _drop(group: Group, partitions: Iterable[TopicPartition], now: Now, out: list[Action]) -> None:
    """Removes commits, and with the last one a group that has nothing else."""
    removed = group.offsets.remove(list(partitions))
    if group.is_vacant:
        _bury(group, removed, now, out)
    elif removed:
        out.append(PersistTombstones(tuple(removed), is_group_gone=False))


def _bury(group: Group, removed: list[TopicPartition], now: Now, out: list[Action]) -> None:
    """A group that never had a generation has no record, so it needs no tombstone."""
    group.transition_to(GroupState.DEAD, now)
    has_record = group.generation > 0
    if removed or has_record:
        out.append(PersistTombstones(tuple(removed), is_group_gone=has_record))
    out.append(Discard())
