"""ReadShareGroupStateSummary (key 87, versions 0-1): start offsets and epochs of share-partitions (KIP-932).

Group coordinators send it to answer DescribeShareGroupOffsets.  Served with `share` in
group.coordinator.rebalance.protocols.  1: the number of offsets whose delivery is complete (KIP-1226).
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct, uuid


@struct
class SummaryPartition:
    """A share-partition and the leader epoch of the partition; -1 if it is unknown."""

    partition: int = int32(is_partition=True)
    leader_epoch: int = int32()


@struct
class SummaryTopic:
    """The partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[SummaryPartition] = array(SummaryPartition)


@request(key=87, versions="0-1", flexible="0+", served="none")
class ReadShareGroupStateSummaryRequest:
    """Sent to the share coordinator."""

    group_id: str = string()
    topics: list[SummaryTopic] = array(SummaryTopic)


@struct
class PartitionSummary:
    """The state of one share-partition without its batches."""

    partition: int = int32(is_partition=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)


@struct
class TopicSummary:
    """The states of one topic."""

    topic_id: UUID = uuid()
    partitions: list[PartitionSummary] = array(PartitionSummary)


@response(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    """One entry per share-partition."""

    results: list[TopicSummary] = array(TopicSummary)
