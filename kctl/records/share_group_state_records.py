"""Records of __share_group_state, which share coordinators of Kafka 4 write (KIP-932).

The number at the start of a key is the record type.  Kafka: CoordinatorRecordType of the share coordinator (4.3).
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import array, data, int8, int16, int32, int64, string, struct, uuid


@data(versions="0")
class ShareSnapshotKey:
    """Key of a snapshot of a share-partition."""

    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


@struct
class StateBatch:
    """Consecutive offsets in the same state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@data(versions="0", flexible="0+")
class ShareSnapshotValue:
    """The whole state of a share-partition."""

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


@data(versions="0")
class ShareUpdateKey:
    """Key of a change since the last snapshot."""

    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


@data(versions="0", flexible="0+")
class ShareUpdateValue:
    """A change of the state; start offset -1 means unchanged."""

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch)


KINDS: dict[int, tuple[type, type]] = {
    0: (ShareSnapshotKey, ShareSnapshotValue),
    1: (ShareUpdateKey, ShareUpdateValue),
}
"""Classes of key and value by record type."""
