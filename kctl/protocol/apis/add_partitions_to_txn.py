"""AddPartitionsToTxn (key 24, versions 0-3): adds partitions to a transaction before it writes to them (KIP-98).

2: PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH.  3: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, int64, partition_number, request, response, string, struct


@struct
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: str = string(is_topic=True)
    partitions: list[int] = array(partition_number)


@request(key=24, versions="0-3", flexible="3+")
class AddPartitionsToTxnRequest:
    """Sent to the transaction coordinator, which adds all of the partitions or none."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


@struct
class AddPartitionsToTxnPartitionResult:
    """The result for one partition."""

    partition_index: int = int32(is_partition=True)
    error_code: int = int16()
    """OPERATION_NOT_ATTEMPTED if only other partitions failed."""


@struct
class AddPartitionsToTxnTopicResult:
    """The results for one topic."""

    name: str = string(is_topic=True)
    results: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


@response(key=24, versions="0-3", flexible="3+")
class AddPartitionsToTxnResponse:
    """The result for each partition; an error of the whole transaction is repeated for all."""

    throttle_time_ms: int = int32(default=0)
    results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)
