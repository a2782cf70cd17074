"""AlterReplicaLogDirs (key 34, versions 0-2): moves replicas of this broker to another log directory (KIP-113).

2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, partition_number, request, response, string, struct


@struct
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: str = string(is_topic=True)
    partitions: list[int] = array(partition_number)


@struct
class AlterReplicaLogDir:
    """A log directory and the replicas to move there."""

    path: str = string()
    """Absolute path, one of `log.dirs`."""
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@request(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    """Sent to the broker that has the replicas.  A replica that it does not have yet is created there later."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@struct
class AlterReplicaLogDirPartitionResult:
    """The result for one replica; success means that the move was started."""

    partition_index: int = int32(is_partition=True)
    error_code: int = int16()


@struct
class AlterReplicaLogDirTopicResult:
    """The results for one topic."""

    topic_name: str = string(is_topic=True)
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@response(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """The result for each replica."""

    throttle_time_ms: int = int32(default=0)
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
