"""AddPartitionsToTxn (key 24, versions 0-3): the partitions that a transaction is going to write to.

The coordinator adds all or none.  2: PRODUCER_FENCED.  3: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct


@struct
class AddPartitionsToTxnTopic:
    name: str = string()
    partitions: list[int] = array(int32)


@request(key=24, versions="0-3", flexible="3+")
class AddPartitionsToTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class AddPartitionsToTxnTopicResult:
    name: str = string()
    results: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


@response(key=24, versions="0-3", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = int32(default=0)
    results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)
