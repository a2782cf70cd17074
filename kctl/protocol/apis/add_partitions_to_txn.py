"""AddPartitionsToTxn (key 24, versions 0-5): adds partitions to a transaction before it writes to them (KIP-98).

2: PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH.  3: flexible.  4: several
transactions in one request, from brokers, and verification (KIP-890).  5: TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from kctl.protocol.message import (
    array,
    boolean,
    int16,
    int32,
    int64,
    partition_number,
    request,
    response,
    string,
    struct,
)


@struct
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: str = string(is_topic=True)
    partitions: list[int] = array(partition_number)


@struct
class AddPartitionsToTxnTransaction:
    """The partitions of one transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean(default=False)
    """Whether to say if the partitions are part of the transaction, and to add none."""
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


@request(key=24, versions="0-5", flexible="3+", sent="0-3")
class AddPartitionsToTxnRequest:
    """Sent to the transaction coordinator, which adds all of the partitions of a transaction or none.

    Clients use the versions up to 3, with one transaction, and brokers the others.
    """

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+", default=[])
    transactional_id: str = string("0-3", default="")
    producer_id: int = int64("0-3", default=-1)
    producer_epoch: int = int16("0-3", default=-1)
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3", default=[])


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


@struct
class AddPartitionsToTxnResult:
    """The results for one transaction."""

    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


@response(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """The result for each partition; an error of the whole transaction is repeated for all."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+", default=[])
    results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "0-3", default=[])
