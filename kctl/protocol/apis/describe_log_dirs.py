"""DescribeLogDirs (key 35, versions 0-2): sizes of the replicas on this broker, by log directory (KIP-113).

`topics` null asks for all.  2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, int16, int32, int64, request, response, string, struct


@struct
class DescribableLogDirTopic:
    topic: str = string()
    partitions: list[int] = array(int32)


@request(key=35, versions="0-2", flexible="2+")
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


@struct
class DescribeLogDirsPartition:
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@struct
class DescribeLogDirsTopic:
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@struct
class DescribeLogDirsResult:
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)


@response(key=35, versions="0-2", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: int = int32(default=0)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
