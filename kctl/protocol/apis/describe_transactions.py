"""DescribeTransactions (key 65, version 0): state and partitions of transactions, from their coordinator (KIP-664).

New in Kafka 3.0.  Flexible from the start.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct


@request(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[str] = array(string)


@struct
class TopicData:
    topic: str = string()
    partitions: list[int] = array(int32)


@struct
class TransactionState:
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


@response(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: int = int32(default=0)
    transaction_states: list[TransactionState] = array(TransactionState)
