"""Records of __remote_log_metadata: which segments are in remote storage (KIP-405).

A record has no key.  Its value is framed (kctl.records.framed).  Kafka: RemoteLogMetadataSerde and the
definitions of its storage module (4.3).
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import array, boolean, bytes_, data, int8, int32, int64, nested, string, struct, uuid
from kctl.records.framed import Framed, decode_framed


@struct
class TopicIdPartitionEntry:
    """A partition of a topic."""

    name: str = string()
    id: UUID = uuid()
    partition: int = int32()


@struct
class RemoteLogSegmentIdEntry:
    """A copy of a segment in remote storage."""

    topic_id_partition: TopicIdPartitionEntry = nested(TopicIdPartitionEntry)
    id: UUID = uuid()


@struct
class SegmentLeaderEpochEntry:
    """The first offset of a leader epoch."""

    leader_epoch: int = int32()
    offset: int = int64()


@data(versions="0", flexible="0+")
class RemoteLogSegmentMetadataRecord:
    """A segment is being copied or was copied to remote storage."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = nested(RemoteLogSegmentIdEntry)
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = bytes_(nullable="0+")
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = boolean(default=False, tag=0)


@data(versions="0", flexible="0+")
class RemoteLogSegmentMetadataUpdateRecord:
    """The state of a copied segment changed."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = nested(RemoteLogSegmentIdEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    custom_metadata: bytes | None = bytes_(nullable="0+")
    remote_log_segment_state: int = int8()


@data(versions="0", flexible="0+")
class RemotePartitionDeleteMetadataRecord:
    """The copies of a partition are being deleted."""

    topic_id_partition: TopicIdPartitionEntry = nested(TopicIdPartitionEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    remote_partition_delete_state: int = int8()


@data(versions="0", flexible="0+")
class RemoteLogSegmentMetadataSnapshotRecord:
    """A copied segment, in the snapshot of a partition that a broker keeps."""

    segment_id: UUID = uuid()
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = bytes_(nullable="0+")
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = boolean(default=False, tag=0)


TYPES: dict[int, type] = {
    0: RemoteLogSegmentMetadataRecord,
    1: RemoteLogSegmentMetadataUpdateRecord,
    2: RemotePartitionDeleteMetadataRecord,
    3: RemoteLogSegmentMetadataSnapshotRecord,
}
"""Classes by record type."""

SEGMENT_STATES = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
"""RemoteLogSegmentState by number."""
DELETE_STATES = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")
"""RemotePartitionDeleteState by number."""


def decode_remote_log_metadata(value: bytes) -> Framed:
    """Decode the value of a record.  Raises MalformedRequest."""
    return decode_framed(TYPES, value)
