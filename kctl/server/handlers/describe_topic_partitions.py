"""DescribeTopicPartitions (key 75, version 0): topics and their partitions in pages, ordered by name.  KIP-966.

A page has at most `response_partition_limit` partitions, and PARTITIONS_PER_PAGE_MAX; the cursor of the response is
where the next one begins.  Without topics in the request all are described.  A topic that the client may not describe
is TOPIC_AUTHORIZATION_FAILED, and is left out if all are described.  Eligible leader replicas are those of KRaft: here
there are none.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection

from kctl.errors import ErrorCode
from kctl.limits import SLICE_OBJECTS, Subject, bound
from kctl.model import INTERNAL_TOPICS
from kctl.protocol.apis.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    PartitionDescription,
    TopicDescription,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.loop.slices import size_of_id, sliced, sliced_batches
from kctl.server.peers.metadata import MetadataCache, PartitionInfo
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import authorized_operations

PARTITIONS_PER_PAGE_MAX = bound(
    Subject.PARTITIONS,
    "partitions of one page of DescribeTopicPartitions",
    2_000,
    "partitions",
    on_excess="a cursor says where the next page begins",
)
_NO_LEADER = -1


class DescribeTopicPartitionsHandler:
    """Serves DescribeTopicPartitions requests.  Owner: event loop."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    async def handle(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> DescribeTopicPartitionsResponse:
        """Serve one request and return the response."""
        cursor = request.cursor
        is_all = not request.topics
        names = await self._names(request)
        if cursor is not None:
            names = names[bisect.bisect_left(names, cursor.topic_name) :]
        left = max(min(request.response_partition_limit, PARTITIONS_PER_PAGE_MAX), 1)
        response = DescribeTopicPartitionsResponse(topics=[])
        async for name in sliced(names, SLICE_OBJECTS, size_of_id):
            if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
                if not is_all:
                    response.topics.append(_failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            partitions = self._metadata.partitions(name)
            if partitions is None:
                if not is_all:
                    response.topics.append(_failed(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
            indexes = [index for index in sorted(partitions) if index >= first]
            if left == 0 and indexes:
                response.next_cursor = Cursor(topic_name=name, partition_index=indexes[0])
                break
            response.topics.append(
                self._describe(name, {index: partitions[index] for index in indexes[:left]}, context)
            )
            if len(indexes) > left:
                response.next_cursor = Cursor(topic_name=name, partition_index=indexes[left])
                break
            left -= len(indexes)
        return response

    async def _names(self, request: DescribeTopicPartitionsRequest) -> list[str]:
        """Return the names of the topics in order, each once."""
        requested: Collection[str] = {topic.name for topic in request.topics} or self._metadata.topics
        names: list[str] = []
        async for some in sliced_batches(list(requested)):
            names += some
        return sorted(names)

    def _describe(self, name: str, partitions: dict[int, PartitionInfo], context: RequestContext) -> TopicDescription:
        brokers = self._metadata.brokers
        alive = {broker_id for broker_id, broker in brokers.items() if broker.endpoint(context.listener) is not None}
        return TopicDescription(
            error_code=ErrorCode.NONE,
            name=name,
            topic_id=self._metadata.topic_id(name),
            is_internal=name in INTERNAL_TOPICS,
            partitions=[_partition(index, info, alive) for index, info in partitions.items()],
            topic_authorized_operations=authorized_operations(context, ResourceType.TOPIC, name),
        )


def _partition(index: int, info: PartitionInfo, alive: Collection[int]) -> PartitionDescription:
    has_leader = info.leader in alive
    return PartitionDescription(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=info.leader if has_leader else _NO_LEADER,
        leader_epoch=info.leader_epoch,
        replica_nodes=list(info.replicas),
        isr_nodes=list(info.isr),
        eligible_leader_replicas=[],  # Java clients of 3.8 and 3.9 fail if it is null.
        last_known_elr=[],
        offline_replicas=list(info.offline_replicas),
    )


def _failed(name: str, error: ErrorCode) -> TopicDescription:
    return TopicDescription(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS, partitions=[])
