"""WriteShareGroupState (key 85, versions 0-1): changes the state of share-partitions (KIP-932).

The leader of a partition sends it to the share coordinator before it confirms acknowledgements.  Served with `share` in
group.coordinator.rebalance.protocols.  1: the number of offsets whose delivery is complete (KIP-1226).
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.apis.read_share_group_state import StateBatch
from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct, uuid


@struct
class WrittenPartition:
    """A change of one share-partition."""

    partition: int = int32(is_partition=True)
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    """-1 if it does not change."""
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    """How many offsets from the start offset on are acknowledged or archived; -1 if unknown."""
    state_batches: list[StateBatch] = array(StateBatch)


@struct
class WrittenTopic:
    """The partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[WrittenPartition] = array(WrittenPartition)


@request(key=85, versions="0-1", flexible="0+", served="none")
class WriteShareGroupStateRequest:
    """Sent to the share coordinator."""

    group_id: str = string()
    topics: list[WrittenTopic] = array(WrittenTopic)


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


@response(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    """One outcome per share-partition."""

    results: list[TopicResult] = array(TopicResult)
