"""ListOffsets (key 2, versions 0-11): looks up offsets by timestamp (KIP-79).

1: one offset with its timestamp instead of `old_style_offsets`.  2: isolation level (KIP-98), throttle time.  4: leader
epochs (KIP-320).  6: flexible.  7: timestamp -3 for the record with the largest timestamp (KIP-734).  8: -4 for the
start of the local log (KIP-405).  9: -5 for the end of what is in remote storage (KIP-1005).  10: a limit for
searches in remote storage (KIP-1075).  11: -6 for the first offset that is not in remote storage (KIP-1023).
"""

from __future__ import annotations

from kctl.protocol.message import array, int8, int16, int32, int64, request, response, string, struct


@struct
class ListOffsetsPartition:
    """A partition and the timestamp to look up."""

    partition_index: int = int32(is_partition=True)
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    """The epoch that the client knows: another one is refused as fenced or unknown; -1 is not checked (KIP-320)."""
    timestamp: int = int64()
    """In ms since the epoch: the first record at or after it.  -1 for the end of the partition, -2 for its start."""
    max_num_offsets: int = int32("0", default=1)
    """Limit for `old_style_offsets`."""


@struct
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: str = string(is_topic=True)
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@request(key=2, versions="0-11", flexible="6+", sent="0-9")
class ListOffsetsRequest:
    """Sent to the leaders of the partitions."""

    replica_id: int = int32()
    """Broker id of a follower, -1 for consumers, -2 for debugging tools."""
    isolation_level: int = int8("2+", default=0)
    """For timestamp -1: 0 gives the high watermark, 1 the last stable offset."""
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", default=0, ignorable=True)
    """How long a search in remote storage may take."""


@struct
class ListOffsetsPartitionResponse:
    """The result for one partition."""

    partition_index: int = int32(is_partition=True)
    error_code: int = int16()
    old_style_offsets: list[int] = array(int64, "0", default=[])
    """Base offsets of segments before the timestamp, and possibly the log end, in descending order."""
    timestamp: int = int64("1+", default=-1)
    """Timestamp of the record; -1 if there is none, and for the timestamps -1 and -2."""
    offset: int = int64("1+", default=-1)
    """-1 if there is no such record."""
    leader_epoch: int = int32("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    """The partitions of one topic."""

    name: str = string(is_topic=True)
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@response(key=2, versions="0-11", flexible="6+")
class ListOffsetsResponse:
    """The result for each partition."""

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
