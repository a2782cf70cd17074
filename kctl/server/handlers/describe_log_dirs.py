"""DescribeLogDirs (key 35, versions 0-3): this broker's log directories and the sizes of the logs in them.  KIP-113.

Null topics mean all; partitions that are not on this broker are left out.  An offline directory gets only
KAFKA_STORAGE_ERROR.  `offset_lag` is the distance in offsets from a log's end to the high watermark; for a future log
(`is_future_key`) it is the distance to the end of the current log.

Version notes: 3 CLUSTER_AUTHORIZATION_FAILED, where earlier ones have no directories.
"""

from __future__ import annotations

from collections import defaultdict

from kctl.errors import ErrorCode
from kctl.limits import SLICE_OBJECTS
from kctl.model import TopicPartition
from kctl.protocol.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kctl.security.acls import Operation
from kctl.server.loop.slices import sliced
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.context import RequestContext
from kctl.storage.directories.log_directory import LogDirectory
from kctl.storage.log.log import Log
from kctl.storage.log_manager import LogManager

NO_LAG = -1
"""The lag of a future log without a current log."""


FIRST_VERSION_WITH_ERROR = 3


class DescribeLogDirsHandler:
    """Serves DescribeLogDirs requests.  Owner: event loop."""

    def __init__(self, logs: LogManager, replicas: ReplicaManager) -> None:
        self._logs = logs
        self._replicas = replicas

    async def handle(self, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
        """Serve one request and return the response."""
        if not context.allows_on_cluster(Operation.DESCRIBE):
            has_error = context.api_version >= FIRST_VERSION_WITH_ERROR
            error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if has_error else ErrorCode.NONE
            return DescribeLogDirsResponse(error_code=error, results=[])
        requested = (
            None
            if request.topics is None
            else {
                topic_partition
                async for topic_partition in sliced(
                    TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions
                )
            }
        )
        results = [await self._result(directory, requested) for directory in self._logs.directories]
        return DescribeLogDirsResponse(results=results)

    async def _result(self, directory: LogDirectory, requested: set[TopicPartition] | None) -> DescribeLogDirsResult:
        if not directory.is_online:
            return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[])
        logs = (*self._logs.logs.values(), *self._logs.futures.logs.values())
        described = (
            (log.topic_partition.topic, self._partition(log.topic_partition, log))
            for log in sorted(logs, key=lambda log: log.topic_partition)
            if log.log_directory is directory and (requested is None or log.topic_partition in requested)
        )
        topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
        async for topic, partition in sliced(described, SLICE_OBJECTS):
            topics[topic].append(partition)
        return DescribeLogDirsResult(
            error_code=ErrorCode.NONE,
            log_dir=directory.path,
            topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        )

    def _partition(self, topic_partition: TopicPartition, log: Log) -> DescribeLogDirsPartition:
        is_future = self._logs.futures.get(topic_partition) is log
        return DescribeLogDirsPartition(
            partition_index=topic_partition.partition,
            partition_size=log.size_bytes,
            offset_lag=self._future_lag(log) if is_future else self._lag(log),
            is_future_key=is_future,
        )

    def _lag(self, log: Log) -> int:
        return max(self._replicas.high_watermark_of(log.topic_partition) - log.log_end_offset, 0)

    def _future_lag(self, copy: Log) -> int:
        log = self._logs.get(copy.topic_partition)
        return NO_LAG if log is None else log.log_end_offset - copy.log_end_offset
