"""InitializeShareGroupState (key 83, version 0): begins the state of share-partitions (KIP-932).

Group coordinators send it to the share coordinator of each share-partition.  Served with `share` in
group.coordinator.rebalance.protocols.
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct, uuid


@struct
class InitializedPartition:
    """A share-partition and the state with which it begins."""

    partition: int = int32(is_partition=True)
    state_epoch: int = int32()
    start_offset: int = int64()
    """-1 if the leader of the partition determines it."""


@struct
class InitializedTopic:
    """The partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[InitializedPartition] = array(InitializedPartition)


@request(key=83, versions="0", flexible="0+", served="none")
class InitializeShareGroupStateRequest:
    """Sent to the share coordinator."""

    group_id: str = string()
    topics: list[InitializedTopic] = array(InitializedTopic)


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


@response(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    """One outcome per share-partition."""

    results: list[TopicResult] = array(TopicResult)
