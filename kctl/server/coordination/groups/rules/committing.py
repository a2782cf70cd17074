"""Offset commits, and the removal of committed offsets: deleted, deleted with their topic, expired."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from kctl.errors import ErrorCode
from kctl.limits import REQUEST_ELEMENTS_PER_SLICE_MAX
from kctl.model import TopicPartition
from kctl.server.coordination.groups.actions import (
    Action,
    DeleteOffsetsOutcome,
    Discard,
    ForgetTransaction,
    GroupState,
    PersistOffsets,
    PersistTombstones,
    Repeat,
    Respond,
)
from kctl.server.coordination.groups.events import (
    UNKNOWN_MEMBER,
    CommitAppend,
    CommitRequest,
    DecideOffsets,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    ForgetTopics,
    Now,
    TransactionalCommit,
    TransactionCompleted,
)
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.groups.rules.epochs import commit_error, transactional_commit_error
from kctl.server.coordination.groups.rules.rebalance import expect_heartbeat
from kctl.server.coordination.groups.rules.share_group import forget_share_topics


def commit(group: Group, event: CommitRequest, now: Now, out: list[Action]) -> None:
    """Stage the commits and write them to the log; metadata that is too large refuses only its partition."""
    error = _commit_error(group, event)
    if error is not ErrorCode.NONE:
        out.append(Respond(event.token, dict.fromkeys(event.offsets, error)))
        return
    member = group.members.get(event.member_id)
    # A commit shows that the member is alive, as a heartbeat does.
    if member is not None:
        expect_heartbeat(member, member.session_timeout_ms, now, out)
    accepted, refused = _sorted_by_size(group, event.offsets)
    if not accepted:
        out.append(Respond(event.token, dict.fromkeys(refused, ErrorCode.OFFSET_METADATA_TOO_LARGE)))
        return
    group.offsets.stage(accepted)
    append_id = group.add_pending_append(CommitAppend(event.token, accepted, refused))
    out.append(PersistOffsets(append_id, accepted))


def commit_in_transaction(group: Group, event: TransactionalCommit, out: list[Action]) -> None:
    """As `commit` in a transaction: invisible until the transaction's marker, and does not extend the session."""
    error = _transactional_commit_error(group, event)
    if error is not ErrorCode.NONE:
        out.append(Respond(event.token, dict.fromkeys(event.offsets, error)))
        return
    accepted, refused = _sorted_by_size(group, event.offsets)
    if not accepted:
        out.append(Respond(event.token, dict.fromkeys(refused, ErrorCode.OFFSET_METADATA_TOO_LARGE)))
        return
    producer_id = event.producer.producer_id
    group.offsets.stage_transaction(producer_id, accepted)
    append_id = group.add_pending_append(CommitAppend(event.token, accepted, refused, producer_id))
    out.append(PersistOffsets(append_id, accepted, event.producer))


def commit_stored(group: Group, append: CommitAppend, error: ErrorCode, base_offset: int, out: list[Action]) -> None:
    """Process the outcome of an append of commits; outside of a transaction, written commits become visible now."""
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
    out.append(Respond(append.token, outcome))


def delete_group(group: Group, event: DeleteGroup, now: Now, out: list[Action]) -> None:
    """Delete a group without members, else NON_EMPTY_GROUP."""
    if group.state is GroupState.DEAD:
        out.append(Respond(event.token, ErrorCode.GROUP_ID_NOT_FOUND))
    elif not group.has_no_members:
        out.append(Respond(event.token, ErrorCode.NON_EMPTY_GROUP))
    else:
        removed = group.offsets.remove(group.offsets.known())
        _remove_group(group, removed, now, out)
        out.append(Respond(event.token, ErrorCode.NONE))


def delete_offsets(group: Group, event: DeleteOffsets, now: Now, out: list[Action]) -> None:
    """Keep offsets of topics to which members subscribe; groups of other types must be empty.  KIP-496."""
    if group.state is GroupState.DEAD:
        out.append(Respond(event.token, DeleteOffsetsOutcome(ErrorCode.GROUP_ID_NOT_FOUND, {})))
        return
    if group.state is not GroupState.EMPTY and not group.is_consumer_group:
        out.append(Respond(event.token, DeleteOffsetsOutcome(ErrorCode.NON_EMPTY_GROUP, {})))
        return
    is_empty = group.has_no_members
    errors = {
        tp: ErrorCode.NONE if is_empty or not group.is_subscribed_to(tp.topic) else ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        for tp in event.partitions
    }
    deleted = [tp for tp, error in errors.items() if error is ErrorCode.NONE]
    if group.newer is None:
        _drop(group, deleted, now, out)
    elif removed := group.offsets.remove(deleted):
        # A group of a newer type is removed when it expires, as in Kafka 4.
        out.append(PersistTombstones(tuple(removed), is_group_gone=False))
    out.append(Respond(event.token, DeleteOffsetsOutcome(ErrorCode.NONE, errors)))


def forget_topics(group: Group, event: ForgetTopics, now: Now, out: list[Action]) -> None:
    """Remove the commits of deleted topics: a new topic of the same name starts without commits."""
    forget_share_topics(group, event.topics, now, out)
    some = _next_partitions(event, group.offsets.known, out)
    forgotten = [tp for tp in some if tp.topic in event.topics]
    if forgotten:
        _drop(group, forgotten, now, out)


def expire_offsets(group: Group, event: ExpireOffsets, now: Now, out: list[Action]) -> None:
    """Remove expired commits, and the group if nothing is left."""
    _drop(group, _expired(group, _next_partitions(event, lambda: group.offsets, out), now), now, out)


def transaction_completed(group: Group, event: TransactionCompleted, out: list[Action]) -> None:
    """Make the commits of the transaction visible, or drop them; if there are thousands, in later steps as well."""
    is_first = not group.offsets.is_deciding
    group.offsets.end_transaction(event.producer_id, committed=event.committed)
    # Otherwise a repeated DecideOffsets is under way, which comes to this transaction too.
    if is_first:
        decide_offsets(group, out)


def decide_offsets(group: Group, out: list[Action]) -> None:
    """Decide about the next commits of transactions that have ended."""
    group.offsets.decide(REQUEST_ELEMENTS_PER_SLICE_MAX)
    if group.offsets.is_deciding:
        out.append(Repeat(DecideOffsets()))


def java_length(text: str) -> int:
    """Return the number of UTF-16 code units, in which Kafka measures metadata in spite of
    `offset.metadata.max.bytes`.
    """
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _commit_error(group: Group, event: CommitRequest) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if group.share is not None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.reconciled is not None:
        topics, epoch, knows = group.topics, event.generation, event.knows_epochs
        return commit_error(group.reconciled, event.member_id, epoch, event.offsets, topics, knows_epochs=knows)
    if group.is_fenced(event.member_id, event.group_instance_id):
        return ErrorCode.FENCED_INSTANCE_ID
    if event.generation < 0 and group.state is GroupState.EMPTY:
        # A client that assigns partitions manually and uses the group only to store offsets.
        return ErrorCode.NONE
    if event.member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    # Members may commit while a rebalance is prepared; heartbeat responses request that they join.
    return ErrorCode.NONE


def _transactional_commit_error(group: Group, event: TransactionalCommit) -> ErrorCode:
    """KIP-447: a member of an older generation must not commit for partitions that are assigned to another one."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if group.share is not None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.reconciled is not None:
        instance_id, epoch = event.group_instance_id, event.generation
        return transactional_commit_error(
            group.reconciled, event.member_id, instance_id, epoch, event.offsets, group.topics
        )
    if group.is_fenced(event.member_id, event.group_instance_id):
        return ErrorCode.FENCED_INSTANCE_ID
    if event.member_id != UNKNOWN_MEMBER and event.member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    # Clients without KIP-447 send -1.
    if 0 <= event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE


def _sorted_by_size(
    group: Group, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> tuple[dict[TopicPartition, OffsetAndMetadata], tuple[TopicPartition, ...]]:
    """Return the commits to write, and the partitions whose metadata is too large."""
    size_max = group.config.offset_metadata_max_bytes
    accepted = {tp: value for tp, value in offsets.items() if java_length(value.metadata) <= size_max}
    return accepted, tuple(tp for tp in offsets if tp not in accepted)


def _next_partitions(
    event: ForgetTopics | ExpireOffsets, known: Callable[[], Iterable[TopicPartition]], out: list[Action]
) -> Sequence[TopicPartition]:
    """Return the partitions to check in this step; if there are more, the event follows again."""
    partitions = tuple(known()) if event.partitions is None else event.partitions
    end = event.checked + REQUEST_ELEMENTS_PER_SLICE_MAX
    if end < len(partitions):
        out.append(Repeat(replace(event, partitions=partitions, checked=end)))
    return partitions[event.checked : end]


def _expired(group: Group, partitions: Iterable[TopicPartition], now: Now) -> list[TopicPartition]:
    """Return those of these partitions whose commits have expired, by the rules of KIP-211."""
    kept_topics: frozenset[str] = frozenset()
    empty_since_ms: int | None = None
    if group.reconciled is not None:
        kept_topics = frozenset(group.reconciled.all_subscribed_names())
    # A group that has never had members: each commit expires by its own time.
    elif group.protocol_type is None:
        pass
    elif group.state is GroupState.EMPTY:
        empty_since_ms = group.state_timestamp_ms if group.state_timestamp_ms >= 0 else None
    elif group.is_consumer_group and group.state is GroupState.STABLE and group.subscribed_topics is not None:
        kept_topics = group.subscribed_topics
    else:
        # The topics of the members are unknown or about to change, so nothing expires.
        return []
    return group.offsets.expired(
        partitions,
        now_ms=now.wall_ms,
        retention_ms=group.config.offsets_retention_ms,
        empty_since_ms=empty_since_ms,
        kept_topics=kept_topics,
    )


def _drop(group: Group, partitions: Iterable[TopicPartition], now: Now, out: list[Action]) -> None:
    """Remove commits, and the group if nothing is left of it."""
    removed = group.offsets.remove(list(partitions))
    if group.is_vacant:
        _remove_group(group, removed, now, out)
    elif removed:
        out.append(PersistTombstones(tuple(removed), is_group_gone=False))


def _remove_group(group: Group, removed: list[TopicPartition], now: Now, out: list[Action]) -> None:
    """Remove the group; one that never had a generation has no record and needs no tombstone."""
    group.transition_to(GroupState.DEAD, now)
    has_record = group.generation > 0
    newer = () if group.newer is None else tuple(group.newer.tombstones())
    if removed or has_record or newer:
        out.append(PersistTombstones(tuple(removed), is_group_gone=has_record, newer=newer))
    out.append(Discard())
