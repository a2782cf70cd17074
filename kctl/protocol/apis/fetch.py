"""Fetch (key 1, versions 0-12): read record batches, as a consumer or as a following replica.

`replica_id` is -1 for consumers.  The broker answers when `min_bytes` are there or `max_wait_ms` are over.  Since 7 a
fetch session (KIP-227) lets requests and responses list only the partitions that changed: id 0 with epoch -1 means no
session.  The topics named in `forgotten_topics_data` leave the session.

3: `max_bytes` for the whole response, and the order of partitions counts.  4: isolation level, last stable offset and
aborted transactions (KIP-98).  5: log start offsets.  7: sessions.  9: leader epochs (KIP-320).  10: zstd is
understood.  11: racks, reading from followers (KIP-392).  12: flexible; truncation by diverging epochs (KIP-595).
"""

from __future__ import annotations

from kctl.protocol.message import (
    Records,
    array,
    int8,
    int16,
    int32,
    int64,
    nested,
    records,
    request,
    response,
    string,
    struct,
)


@struct
class FetchPartition:
    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32()


@struct
class FetchTopic:
    topic: str = string()
    partitions: list[FetchPartition] = array(FetchPartition)


@struct
class ForgottenTopic:
    topic: str = string()
    partitions: list[int] = array(int32)


@request(key=1, versions="0-12", flexible="12+")
class FetchRequest:
    cluster_id: str | None = string("12+", nullable="12+", tag=0, default=None, ignorable=True)
    replica_id: int = int32(default=-1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = int8("4+", default=0, ignorable=True)
    session_id: int = int32("7+", default=0, ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+", default=[])
    rack_id: str = string("11+", default="", ignorable=True)


@struct
class EpochEndOffset:
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@struct
class SnapshotId:
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@struct
class AbortedTransaction:
    producer_id: int = int64()
    first_offset: int = int64()


@struct
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64("4+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = nested(EpochEndOffset, "12+", tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, "12+", tag=1, default=None)
    snapshot_id: SnapshotId | None = nested(SnapshotId, "12+", tag=2, default=None)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, "4+", nullable="4+", default=[], ignorable=True
    )
    preferred_read_replica: int = int32("11+", default=-1)
    records: Records | None = records(nullable="0+")


@struct
class FetchableTopicResponse:
    topic: str = string()
    partitions: list[PartitionData] = array(PartitionData)


@response(key=1, versions="0-12", flexible="12+")
class FetchResponse:
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("7+", default=0, ignorable=True)
    session_id: int = int32("7+", default=0)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
