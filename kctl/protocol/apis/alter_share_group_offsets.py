"""AlterShareGroupOffsets (key 91, version 0): sets the start offsets of an empty share group (KIP-932).

New in Kafka 4.1.
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct, uuid


@struct
class AlteredPartition:
    """The new start offset of one partition."""

    partition_index: int = int32(is_partition=True)
    start_offset: int = int64()


@struct
class AlteredTopic:
    """The partitions of one topic."""

    topic_name: str = string(is_topic=True)
    partitions: list[AlteredPartition] = array(AlteredPartition)


@request(key=91, versions="0", flexible="0+", served="none")
class AlterShareGroupOffsetsRequest:
    """Sent to the coordinator of the group."""

    group_id: str = string()
    topics: list[AlteredTopic] = array(AlteredTopic)


@struct
class PartitionResult:
    """The outcome for one partition."""

    partition_index: int = int32(is_partition=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@struct
class TopicResult:
    """The outcomes for one topic."""

    topic_name: str = string(is_topic=True)
    topic_id: UUID = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@response(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    """One outcome per partition, or one error for all."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    """NON_EMPTY_GROUP while it has members."""
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[TopicResult] = array(TopicResult)
