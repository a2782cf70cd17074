"""DeleteRecords (key 21, versions 0-2): deletes all records before an offset (KIP-107).

2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct


@struct
class DeleteRecordsPartition:
    """A partition and its new log start offset."""

    partition_index: int = int32(is_partition=True)
    offset: int = int64()
    """-1 for the high watermark."""


@struct
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: str = string(is_topic=True)
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@request(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    """Sent to the leaders of the partitions."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()
    """How long to wait until all live replicas have advanced their log start offset."""


@struct
class DeleteRecordsPartitionResult:
    """The result for one partition."""

    partition_index: int = int32(is_partition=True)
    low_watermark: int = int64()
    """The lowest log start offset of all live replicas; -1 on an error."""
    error_code: int = int16()


@struct
class DeleteRecordsTopicResult:
    """The results for one topic."""

    name: str = string(is_topic=True)
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@response(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """The result for each partition."""

    throttle_time_ms: int = int32(default=0)
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
