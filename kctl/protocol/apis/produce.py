"""Produce (key 0, versions 0-9): append record batches to partitions this broker leads.

`acks` is 0 (no response at all), 1 (the leader has it) or -1 (all in-sync replicas have it).  Partitions succeed and
fail one by one.

1, 2: the response tells the throttle time; records are in message format 1.  3: format 2 only, transactional ids
(KIP-98). 5: the response has the log start offset.  7: zstd is allowed (KIP-110).  8: errors of single records
(KIP-467). 9: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import Records, array, int16, int32, int64, records, request, response, string, struct


@struct
class PartitionProduceData:
    index: int = int32()
    records: Records | None = records(nullable="0+")


@struct
class TopicProduceData:
    name: str = string()
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@request(key=0, versions="0-9", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="8+", default=None)


@struct
class PartitionProduceResponse:
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", default=[], ignorable=True)
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)


@struct
class TopicProduceResponse:
    name: str = string()
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@response(key=0, versions="0-9", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
