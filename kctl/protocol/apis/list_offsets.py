"""ListOffsets (key 2, versions 0-6): find the offset for a point in time.

Timestamp -1 asks for the end of the partition (what the isolation level lets one see), -2 for its start; any other
for the first record at or after it.

0: several offsets by segment, `max_num_offsets` of them at most, in `old_style_offsets`.  1: exactly one, with its
timestamp.  2: isolation level.  4: leader epochs (KIP-320).  6: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int8, int16, int32, int64, request, response, string, struct


@struct
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()
    max_num_offsets: int = int32("0", default=1)


@struct
class ListOffsetsTopic:
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@request(key=2, versions="0-6", flexible="6+")
class ListOffsetsRequest:
    replica_id: int = int32()
    isolation_level: int = int8("2+", default=0)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = array(int64, "0", default=[])
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@response(key=2, versions="0-6", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
