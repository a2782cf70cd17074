"""ReadShareGroupState (key 84, version 0): the whole state of share-partitions (KIP-932).

The leader of a partition sends it to the share coordinator, with its leader epoch, which fences former leaders.  Served
with `share` in group.coordinator.rebalance.protocols.
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import array, int8, int16, int32, int64, request, response, string, struct, uuid


@struct
class ReadPartition:
    """A share-partition and the leader epoch of the partition."""

    partition: int = int32(is_partition=True)
    leader_epoch: int = int32()


@struct
class ReadTopic:
    """The partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[ReadPartition] = array(ReadPartition)


@request(key=84, versions="0", flexible="0+", served="none")
class ReadShareGroupStateRequest:
    """Sent to the share coordinator."""

    group_id: str = string()
    topics: list[ReadTopic] = array(ReadTopic)


@struct
class StateBatch:
    """Consecutive offsets in the same state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int = int64()
    last_offset: int = int64()
    """Inclusive."""
    delivery_state: int = int8()
    delivery_count: int = int16()


@struct
class PartitionState:
    """The state of one share-partition."""

    partition: int = int32(is_partition=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    start_offset: int = int64()
    """-1 if it was not determined yet."""
    state_batches: list[StateBatch] = array(StateBatch)


@struct
class TopicState:
    """The states of one topic."""

    topic_id: UUID = uuid()
    partitions: list[PartitionState] = array(PartitionState)


@response(key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    """One state per share-partition."""

    results: list[TopicState] = array(TopicState)
