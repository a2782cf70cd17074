"""OffsetForLeaderEpoch (key 23, versions 0-4): the end offset of a leader epoch in the leader's log (KIP-101).

Followers and consumers use it to find where their log or position diverges from the leader's log.

1: the response has the epoch of the offset (KIP-279).  2: `current_leader_epoch` (KIP-320), throttle time.  3:
`replica_id`.  4: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct


@struct
class OffsetForLeaderPartition:
    """A partition and the epoch to look up."""

    partition: int = int32(is_partition=True)
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    """The epoch that the client knows: another one is refused as fenced or unknown; -1 is not checked (KIP-320)."""
    leader_epoch: int = int32()
    """Epoch of the last record that the sender has."""


@struct
class OffsetForLeaderTopic:
    """The partitions of one topic."""

    topic: str = string(is_topic=True)
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@request(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """Sent to the leaders of the partitions."""

    replica_id: int = int32("3+", default=-2, ignorable=True)
    """Broker id of a follower, -1 for consumers; -2 in versions without the field."""
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@struct
class EpochEndOffset:
    """The largest epoch of the leader that is not above the requested one."""

    error_code: int = int16()
    partition: int = int32(is_partition=True)
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    """-1 if the leader has no such epoch."""
    end_offset: int = int64(default=-1)
    """First offset after the epoch; -1 if the leader has no such epoch."""


@struct
class OffsetForLeaderTopicResult:
    """The partitions of one topic."""

    topic: str = string(is_topic=True)
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@response(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """The result for each partition."""

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
