"""DeleteShareGroupState (key 86, version 0): deletes the state of share-partitions (KIP-932).

Group coordinators send it when a group, its offsets or a topic are deleted.  Served with `share` in
group.coordinator.rebalance.protocols.
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import array, int16, int32, request, response, string, struct, uuid


@struct
class DeletedPartition:
    """A share-partition."""

    partition: int = int32(is_partition=True)


@struct
class DeletedTopic:
    """The partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[DeletedPartition] = array(DeletedPartition)


@request(key=86, versions="0", flexible="0+", served="none")
class DeleteShareGroupStateRequest:
    """Sent to the share coordinator."""

    group_id: str = string()
    topics: list[DeletedTopic] = array(DeletedTopic)


@struct
class PartitionResult:
    """The outcome for one share-partition."""

    partition: int = int32(is_partition=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@struct
class TopicResult:
    """The outcomes for one topic."""

    topic_id: UUID = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@response(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    """One outcome per share-partition."""

    results: list[TopicResult] = array(TopicResult)
