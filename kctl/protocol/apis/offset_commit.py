"""OffsetCommit (key 8, versions 0-10): stores the position of a group in partitions.

0: stored in ZooKeeper.  1: member and generation; a timestamp per offset.  2-4: `retention_time_ms`.  3: throttle time.
6: leader epochs (KIP-320).  7: static members (KIP-345).  8: flexible.  9: members of groups of the consumer protocol
(KIP-848).  10: topic ids in place of names, so that a topic that was created again gets no offset of the earlier one.
"""

from __future__ import annotations

from uuid import UUID

from kctl.model import ZERO_UUID
from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct, uuid


@struct
class OffsetCommitRequestPartition:
    """The position in one partition."""

    partition_index: int = int32(is_partition=True)
    committed_offset: int = int64()
    """Offset of the next record to read."""
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    """Epoch of the last record read, to detect truncation; -1 if unknown."""
    commit_timestamp: int = int64("1", default=-1)
    """In ms since the epoch; -1 for the time of the broker."""
    committed_metadata: str | None = string(nullable="0+")
    """Any text of the client; at most `offset.metadata.max.bytes`."""


@struct
class OffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str = string("0-9", is_topic=True, default="", ignorable=True)
    topic_id: UUID = uuid("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@request(key=8, versions="0-10", flexible="8+")
class OffsetCommitRequest:
    """Sent to the group coordinator."""

    group_id: str = string()
    generation_id: int = int32("1+", default=-1, ignorable=True)
    """The epoch of a member of the consumer protocol; -1 for a client that is not a member, such as a tool."""
    member_id: str = string("1+", default="", ignorable=True)
    """Empty for a client that is not a member."""
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    """-1 for the broker's `offsets.retention.minutes`, which newer versions always use (KIP-211)."""
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@struct
class OffsetCommitResponsePartition:
    """The result for one partition."""

    partition_index: int = int32(is_partition=True)
    error_code: int = int16()


@struct
class OffsetCommitResponseTopic:
    """The results for one topic."""

    name: str = string("0-9", is_topic=True, default="", ignorable=True)
    topic_id: UUID = uuid("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@response(key=8, versions="0-10", flexible="8+")
class OffsetCommitResponse:
    """The result for each partition."""

    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
