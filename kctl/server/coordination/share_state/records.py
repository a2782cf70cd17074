"""Converts between the state of a share-partition and its records in `__share_group_state`.

Pure.  Kafka: ShareCoordinatorRecordHelpers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kctl.errors import MalformedRequest
from kctl.protocol.codec import decode_body, encode_versioned, version_of
from kctl.protocol.definition import definition_of
from kctl.records.header import BatchHeader, Record
from kctl.records.internal.newer_group_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from kctl.records.internal.newer_group_records import StateBatch as RecordedBatch
from kctl.records.internal.topics import UnknownKey
from kctl.server.coordination.replay import pass_over
from kctl.server.coordination.share_state.state import Change, Deletion, ShareState, Snapshot, Update, applied
from kctl.server.share_partitions.values import DeliveryState, ShareKey, StateBatch

_SNAPSHOT, _UPDATE = 0, 1
_TYPE_BYTES = 2
_VERSION = 0
_POSITION_IN_BATCH = 0
"""build_batch sets the offsets of records."""
_STATES = {state.value: state for state in DeliveryState}


def state_record(key: ShareKey, change: Change, timestamp_ms: int) -> Record:
    """Return the record of a change."""
    is_update = isinstance(change, Update)
    key_class = ShareUpdateKey if is_update else ShareSnapshotKey
    message = key_class(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    kind = _UPDATE if is_update else _SNAPSHOT
    encoded = kind.to_bytes(_TYPE_BYTES, "big") + encode_versioned(message, _VERSION)[_TYPE_BYTES:]
    return Record(_POSITION_IN_BATCH, timestamp_ms, encoded, _value(change))


def _value(change: Change) -> bytes | None:
    match change:
        case Deletion():
            return None
        case Snapshot(state):
            snapshot = ShareSnapshotValue(
                snapshot_epoch=state.snapshot_epoch,
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.delivery_complete_count,
                create_timestamp=state.created_ms,
                write_timestamp=state.snapshot_ms,
                state_batches=_recorded(state.batches),
            )
            return encode_versioned(snapshot, _VERSION)
        case Update():
            update = ShareUpdateValue(
                snapshot_epoch=change.snapshot_epoch,
                leader_epoch=change.leader_epoch,
                start_offset=change.start_offset,
                delivery_complete_count=change.delivery_complete_count,
                state_batches=_recorded(change.batches),
            )
            return encode_versioned(update, _VERSION)


def _recorded(batches: Sequence[StateBatch]) -> list[RecordedBatch]:
    return [
        RecordedBatch(
            first_offset=batch.first,
            last_offset=batch.last,
            delivery_state=batch.state.value,
            delivery_count=batch.delivery_count,
        )
        for batch in batches
    ]


def decode_record(key: bytes, value: bytes | None) -> tuple[ShareKey, Change] | None:
    """Return share-partition and change; None for a record of another kind.  Raises MalformedRequest."""
    kind = version_of(key)
    if kind not in {_SNAPSHOT, _UPDATE}:
        pass_over(UnknownKey(kind))
        return None
    named = decode_body(ShareSnapshotKey, key, _VERSION)
    share_key = ShareKey(named.group_id, named.topic_id, named.partition)
    if value is None:
        return share_key, Deletion()
    cls: type[ShareSnapshotValue | ShareUpdateValue] = ShareSnapshotValue if kind == _SNAPSHOT else ShareUpdateValue
    version = version_of(value)
    if version not in definition_of(cls).versions:
        raise MalformedRequest(f"{cls.__name__} has version {version}")
    message = decode_body(cls, value, version)
    batches = tuple(_batch(recorded) for recorded in message.state_batches)
    if isinstance(message, ShareUpdateValue):
        return share_key, Update(
            message.snapshot_epoch, message.leader_epoch, message.start_offset, batches, message.delivery_complete_count
        )
    return share_key, Snapshot(
        ShareState(
            message.state_epoch,
            message.start_offset,
            message.leader_epoch,
            batches,
            message.delivery_complete_count,
            message.snapshot_epoch,
            message.create_timestamp,
            message.write_timestamp,
        )
    )


def _batch(recorded: RecordedBatch) -> StateBatch:
    state = _STATES.get(recorded.delivery_state)
    if state is None or recorded.first_offset > recorded.last_offset:
        raise MalformedRequest(f"invalid state batch {recorded}")
    return StateBatch(recorded.first_offset, recorded.last_offset, state, recorded.delivery_count)


class Loaded(NamedTuple):
    """A share-partition as it was read, and the offset of its last snapshot."""

    state: ShareState
    snapshot_offset: int


class SharePlayback:
    """coordinators.replay.Playback: replay the partition's records in order, then take `states`."""

    def __init__(self) -> None:
        self._states: dict[ShareKey, Loaded] = {}

    def record(self, record: Record, header: BatchHeader) -> None:
        """Apply one record."""
        decoded = decode_record(record.key or b"", record.value)
        if decoded is None:
            return
        key, change = decoded
        before = self._states.get(key)
        state = applied(None if before is None else before.state, change)
        if state is None:
            self._states.pop(key, None)
        else:
            is_snapshot = before is None or isinstance(change, Snapshot)
            self._states[key] = Loaded(state, record.offset if is_snapshot else before.snapshot_offset)  # type: ignore[union-attr]

    def marker(self, record: Record, header: BatchHeader) -> None:
        """Ignore markers: there are no transactions in the topic."""

    def states(self) -> Iterator[tuple[ShareKey, Loaded]]:
        """Yield the share-partitions, each once, and drop them."""
        while self._states:
            yield self._states.popitem()
