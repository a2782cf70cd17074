"""DescribeLogDirs (key 35, versions 0-5): sizes of the replicas on a broker (KIP-113).

2: flexible.  3: an error of the whole response.  4: size and free space of the file system (KIP-827).
5: whether new replicas are kept out of a directory (KIP-1066).  Ours serves 0-3.
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
class DescribableLogDirTopic:
    """Partitions of one topic."""

    topic: str = string(is_topic=True)
    partitions: list[int] = array(partition_number)


@request(key=35, versions="0-5", flexible="2+", served="0-3")
class DescribeLogDirsRequest:
    """Describes the log directories of the broker that receives it."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")
    """Null for all topics."""


@struct
class DescribeLogDirsPartition:
    """A replica in a log directory."""

    partition_index: int = int32(is_partition=True)
    partition_size: int = int64()
    """Size of all segments in bytes."""
    offset_lag: int = int64()
    """For a future log, how far it is behind the current log; else how far the log end is behind the high watermark."""
    is_future_key: bool = boolean()
    """True for a future log: a copy that AlterReplicaLogDirs is moving to this directory."""


@struct
class DescribeLogDirsTopic:
    """The replicas of one topic."""

    name: str = string(is_topic=True)
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@struct
class DescribeLogDirsResult:
    """One log directory."""

    error_code: int = int16()
    """KAFKA_STORAGE_ERROR if the directory is offline."""
    log_dir: str = string()
    """Absolute path."""
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(versions="4+", default=-1)
    """Size of the file system; -1 if unknown."""
    usable_bytes: int = int64(versions="4+", default=-1)
    """Free space that the broker may use; -1 if unknown."""
    is_cordoned: bool = boolean("5+", default=False, ignorable=True)
    """Whether the directory gets no new replicas."""


@response(key=35, versions="0-5", flexible="2+")
class DescribeLogDirsResponse:
    """All log directories of the broker; before version 3, empty without authorization."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(versions="3+", default=0)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
