"""Fetch (key 1, versions 0-18): reads record batches, for consumers and follower replicas.

The broker responds when `min_bytes` are available or `max_wait_ms` have passed.  In a fetch session (KIP-227) requests
and responses list only the partitions that changed.

1: throttle time.  3: `max_bytes` for the whole response, and the order of partitions counts (KIP-74).  4: isolation
level, last stable offset and aborted transactions (KIP-98).  5: log start offsets (KIP-107).  7: sessions (KIP-227).
9: leader epochs (KIP-320).  10: batches may be compressed with zstd (KIP-110).  11: racks, reading from followers
(KIP-392).  12: flexible; truncation by diverging epochs (KIP-595).  13: topic ids instead of names (KIP-516).  15:
`replica_state` instead of `replica_id` (KIP-903).  16: endpoints of new leaders (KIP-951).  17: directory ids
(KIP-853).  18: high watermarks of followers (KIP-1166).
"""

from __future__ import annotations

from uuid import UUID

from kctl.model import ZERO_UUID
from kctl.protocol.message import (
    Records,
    array,
    int8,
    int16,
    int32,
    int64,
    nested,
    partition_number,
    records,
    request,
    response,
    string,
    struct,
    uuid,
)


@struct
class FetchPartition:
    """A partition to read."""

    partition: int = int32(is_partition=True)
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    """The epoch that the client knows: another one is refused as fenced or unknown; -1 is not checked (KIP-320)."""
    fetch_offset: int = int64()
    """The first offset to return; the batch that contains it may start before it."""
    last_fetched_epoch: int = int32("12+", default=-1)
    """For followers: epoch of the last record in the follower's log, to detect divergence; -1 if there is none."""
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    """For followers: log start offset of the follower's replica; -1 for consumers."""
    partition_max_bytes: int = int32()
    """Limit for this partition; the first batch is returned whole even if larger (KIP-74)."""
    replica_directory_id: UUID = uuid("17+", tag=0, default=ZERO_UUID, ignorable=True)
    """For followers of KRaft: the log directory of the replica."""
    high_watermark: int = int64("18+", tag=1, default=0x7FFFFFFFFFFFFFFF, ignorable=True)
    """For followers of KRaft: the high watermark that the follower knows, to be notified of a larger one."""


@struct
class FetchTopic:
    """The partitions of one topic."""

    topic: str = string("0-12", default="", is_topic=True, ignorable=True)
    topic_id: UUID = uuid("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


@struct
class ForgottenTopic:
    """Partitions of one topic that leave the session."""

    topic: str = string("7-12", default="", is_topic=True, ignorable=True)
    topic_id: UUID = uuid("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[int] = array(partition_number)


@struct
class ReplicaState:
    """The follower that fetches."""

    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


@request(key=1, versions="0-18", flexible="12+", sent="0-12")
class FetchRequest:
    """Sent to the leaders, or by consumers to the preferred read replica (KIP-392)."""

    cluster_id: str | None = string("12+", nullable="12+", tag=0, default=None, ignorable=True)
    """Used by KRaft brokers before registration; null otherwise."""
    replica_id: int = int32("0-14", default=-1)
    """Broker id of a follower, -1 for consumers, -2 for debugging tools."""
    replica_state: ReplicaState | None = nested(ReplicaState, "15+", tag=1, default=None)
    """Set by followers."""
    max_wait_ms: int = int32()
    """How long to wait for `min_bytes`."""
    min_bytes: int = int32()
    """The response waits for so many bytes, at most for `max_wait_ms`."""
    max_bytes: int = int32("3+", default=0x7FFFFFFF, ignorable=True)
    """Limit for the whole response in bytes, with the same exception for the first batch."""
    isolation_level: int = int8("4+", default=0, ignorable=True)
    """0 read uncommitted: up to the high watermark; 1 read committed: up to the last stable offset."""
    session_id: int = int32("7+", default=0, ignorable=True)
    """0 without a session, or to request a new one."""
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    """-1 for no session, 0 for a full request that starts one; then it increases with each request."""
    topics: list[FetchTopic] = array(FetchTopic)
    """In a session, only the partitions that were added or whose parameters changed."""
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+", default=[])
    """Partitions to remove from the fetch session (KIP-227)."""
    rack_id: str = string("11+", default="", ignorable=True)
    """The consumer's rack (`client.rack`), to select a replica to read from."""


@struct
class EpochEndOffset:
    """The largest epoch that leader and follower have in common, and its end offset."""

    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@struct
class LeaderIdAndEpoch:
    """The current leader, -1 if unknown."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@struct
class SnapshotId:
    """A snapshot of KRaft's metadata log."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@struct
class AbortedTransaction:
    """A transaction whose records a read-committed consumer must skip, from `first_offset` to its abort marker."""

    producer_id: int = int64()
    first_offset: int = int64()
    """The first offset of the transaction in this partition."""


@struct
class PartitionData:
    """The records of one partition."""

    partition_index: int = int32(is_partition=True)
    error_code: int = int16()
    high_watermark: int = int64()
    """-1 on an error."""
    last_stable_offset: int = int64("4+", default=-1, ignorable=True)
    """Records below it belong to completed transactions or to none."""
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = nested(EpochEndOffset, "12+", tag=0, default=None)
    """Set if the follower's log differs from the leader's; it truncates to this offset (KIP-595)."""
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, "12+", tag=1, default=None)
    """Set with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH (KIP-951), and by KRaft."""
    snapshot_id: SnapshotId | None = nested(SnapshotId, "12+", tag=2, default=None)
    """Set by KRaft if the fetch offset is below the log start offset; the follower loads this snapshot (KIP-630)."""
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, "4+", nullable="4+", default=[], ignorable=True
    )
    """Null for isolation level 0."""
    preferred_read_replica: int = int32("11+", default=-1)
    """Broker id that the consumer should read from; -1 for the one that responded."""
    records: Records | None = records(nullable="0+")
    """Batches; the last one may be incomplete.  Null or empty if there are none."""


@struct
class FetchableTopicResponse:
    """The partitions of one topic."""

    topic: str = string("0-12", default="", is_topic=True, ignorable=True)
    topic_id: UUID = uuid("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


@struct
class NodeEndpoint:
    """A broker that leads one of the partitions, with its endpoint for the listener of the request."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@response(key=1, versions="0-18", flexible="12+")
class FetchResponse:
    """In an incremental session, only partitions with records, an error or changed offsets."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("7+", default=0, ignorable=True)
    """An error of the session: FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH."""
    session_id: int = int32("7+", default=0)
    """0 if there is no session."""
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0, default=[], ignorable=True)
    """The leaders that the partitions name with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH (KIP-951)."""
