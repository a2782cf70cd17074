"""DescribeProducers (key 61, version 0): the producer state of a partition, with the start of open transactions.

Any replica responds for its own log (KIP-664), so that an administrator can compare them.  A transaction that is open
in a partition but unknown to its coordinator is a hanging one, which blocks read_committed consumers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from kctl.errors import ApiError, ErrorCode
from kctl.model import topic_name_problem
from kctl.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.context import RequestContext
from kctl.server.requests.slices import in_slices

_PARTITION = 4
"""How many producers take as long as a partition."""


class DescribeProducersHandler:
    """Serves DescribeProducers requests.  Owner: event loop."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def handle(self, request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
        """Serves one request and returns the response."""
        requested: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            # One result however often it is listed: a partition may have many producers.
            requested.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        denied = context.denied(Operation.READ, ResourceType.TOPIC, requested)
        topics: dict[str, list[PartitionResponse]] = {name: [] for name in requested}
        for name, partition in await in_slices(
            self._partitions(requested, denied), lambda described: _PARTITION + len(described[1].active_producers)
        ):
            topics[name].append(partition)
        return DescribeProducersResponse(
            topics=[TopicResponse(name=name, partitions=partitions) for name, partitions in topics.items()]
        )

    def _partitions(
        self, requested: Mapping[str, Iterable[int]], denied: Collection[str]
    ) -> Iterator[tuple[str, PartitionResponse]]:
        for name, indexes in requested.items():
            for index in indexes:
                if name in denied:
                    yield name, _refusal(index, ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                else:
                    yield name, self._partition(name, index)

    def _partition(self, topic: str, index: int) -> PartitionResponse:
        problem = topic_name_problem(topic)
        if problem is not None:
            return _refusal(index, ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem))
        try:
            state = self._replicas.partition(topic, index).log.producer_state
        except ApiError as error:
            return _refusal(index, error)
        return PartitionResponse(
            partition_index=index,
            error_code=ErrorCode.NONE,
            active_producers=[
                ProducerState(
                    producer_id=entry.producer_id,
                    producer_epoch=entry.epoch,
                    last_sequence=entry.last_sequence,
                    last_timestamp=entry.last_timestamp,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=entry.current_txn_first_offset,
                )
                for entry in state.producers.values()
            ],
        )


def _refusal(index: int, error: ApiError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message, active_producers=[]
    )
