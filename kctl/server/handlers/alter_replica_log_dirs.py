"""AlterReplicaLogDirs (key 34, versions 0-2): moves this broker's replicas to other log directories.  KIP-113.

The response is sent when the moves have started; DescribeLogDirs shows their progress.  A replica that is not on this
broker gets REPLICA_NOT_AVAILABLE, and its log will be created in that directory.  A request for the directory in which
a replica already is cancels its move.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator

from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.output.log_lines import by_peer
from kctl.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kctl.security.acls import Operation
from kctl.server.loop.slices import sliced
from kctl.server.replication.logs.log_dir_moves import LogDirMoves
from kctl.server.requests.context import RequestContext

log = logging.getLogger(__name__)


class AlterReplicaLogDirsHandler:
    """Serves AlterReplicaLogDirs requests.  Owner: event loop."""

    def __init__(self, moves: LogDirMoves) -> None:
        self._moves = moves

    async def handle(self, request: AlterReplicaLogDirsRequest, context: RequestContext) -> AlterReplicaLogDirsResponse:
        """Serve one request and return the response."""
        is_allowed = context.allows_on_cluster(Operation.ALTER)
        results: dict[str, list[AlterReplicaLogDirPartitionResult]] = defaultdict(list)
        refused: list[tuple[TopicPartition, ErrorCode]] = []
        async for path, tp in sliced(_requested(request)):
            code = self._move(tp, path) if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            if code is not ErrorCode.NONE:
                refused.append((tp, code))
            results[tp.topic].append(AlterReplicaLogDirPartitionResult(partition_index=tp.partition, error_code=code))
        if refused:
            tp, code = refused[0]
            message = "refused moves between log directories count=%d first=%s error=%s"
            log.info(message, len(refused), tp, code.name, extra=by_peer(context.listener))
        return AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
                for name, partitions in results.items()
            ]
        )

    def _move(self, tp: TopicPartition, path: str) -> ErrorCode:
        try:
            self._moves.move(tp, path)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE


def _requested(request: AlterReplicaLogDirsRequest) -> Iterator[tuple[str, TopicPartition]]:
    """Yield the path of the directory and the partition of each move."""
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                yield directory.path, TopicPartition(topic.name, index)
