"""TxnOffsetCommit (key 28, versions 0-5): stores the position of a group as part of a transaction (KIP-98).

2: leader epochs (KIP-320).  3: flexible; member and generation, to fence former members (KIP-447).  4:
TRANSACTION_ABORTABLE.  5: adds the group to the transaction (KIP-890).
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct


@struct
class TxnOffsetCommitRequestPartition:
    """The position in one partition."""

    partition_index: int = int32(is_partition=True)
    committed_offset: int = int64()
    """Offset of the next record to read."""
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    """Epoch of the last record read; -1 if unknown."""
    committed_metadata: str | None = string(nullable="0+")
    """A text that OffsetFetch returns."""


@struct
class TxnOffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str = string(is_topic=True)
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@request(key=28, versions="0-5", flexible="3+", sent="0-3")
class TxnOffsetCommitRequest:
    """Sent to the group coordinator after AddOffsetsToTxn; the offsets are visible once the transaction commits."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    """-1 if the producer does not give the consumer's group metadata."""
    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@struct
class TxnOffsetCommitResponsePartition:
    """The result for one partition."""

    partition_index: int = int32(is_partition=True)
    error_code: int = int16()


@struct
class TxnOffsetCommitResponseTopic:
    """The results for one topic."""

    name: str = string(is_topic=True)
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@response(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    """The result for each partition."""

    throttle_time_ms: int = int32(default=0)
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
