"""DescribeTransactions (key 65, version 0): the state of transactions (KIP-664).

New in Kafka 3.0.  Flexible from the start.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, int64, partition_number, request, response, string, struct


@request(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    """Sent to the coordinator of the transactional ids."""

    transactional_ids: list[str] = array(string)
    """An empty list returns nothing."""


@struct
class TopicData:
    """Partitions of one topic."""

    topic: str = string(is_topic=True)
    partitions: list[int] = array(partition_number)


@struct
class TransactionState:
    """The state of one transactional id."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    """`Ongoing`, `CompleteCommit` or another state of Kafka's TransactionState."""
    transaction_timeout_ms: int = int32()
    """The coordinator aborts the transaction after this time."""
    transaction_start_time_ms: int = int64()
    """In ms since the epoch; -1 without an open transaction."""
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)
    """Partitions in the transaction; while it is completed, those whose markers are not written yet."""


@response(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """One entry per transactional id of the request."""

    throttle_time_ms: int = int32(default=0)
    transaction_states: list[TransactionState] = array(TransactionState)
