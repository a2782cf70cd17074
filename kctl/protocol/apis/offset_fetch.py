"""OffsetFetch (key 9, versions 0-7): how far a group has read.

Offset -1 means that nothing is committed.  0 read from ZooKeeper.  2: null asks for all topics; an error of the whole
group has a place.  5: leader epochs (KIP-320).  6: flexible.  7: `require_stable` asks to fail while a transaction's
offsets are pending (KIP-447).
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, int16, int32, int64, request, response, string, struct


@struct
class OffsetFetchRequestTopic:
    name: str = string()
    partition_indexes: list[int] = array(int32)


@request(key=9, versions="0-7", flexible="6+")
class OffsetFetchRequest:
    group_id: str = string()
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, nullable="2+")
    require_stable: bool = boolean("7+", default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5+", default=-1, ignorable=True)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


@struct
class OffsetFetchResponseTopic:
    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@response(key=9, versions="0-7", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic)
    error_code: int = int16("2+", default=0, ignorable=True)
