"""DescribeProducers (key 61, version 0): the producer state of a partition, with the start of open transactions.

Any replica responds for its own log (KIP-664), so that an administrator can compare them.  A transaction that is open
in a partition but unknown to its coordinator is a hanging one, which blocks read_committed consumers.
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.limits import SLICE_OBJECTS
from kctl.model import topic_name_problem
from kctl.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.loop.slices import Slices, release
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.context import RequestContext
from kctl.storage.state.producer_state import ProducerEntry

_PARTITION = 4
"""How many producers take as long as a partition."""


class DescribeProducersHandler:
    """Serves DescribeProducers requests.  Owner: event loop."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def handle(self, request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
        """Serve one request and return the response."""
        requested: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            # One result however often it is listed: a partition may have many producers.
            requested.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        denied = context.denied(Operation.READ, ResourceType.TOPIC, requested)
        topics: dict[str, list[PartitionResponse]] = {name: [] for name in requested}
        slices = Slices(SLICE_OBJECTS)
        partitions = ((name, index) for name, indexes in requested.items() for index in indexes)
        async for name, index in slices.of(partitions, lambda _: _PARTITION):
            if name in denied:
                described = _refusal(index, ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            else:
                described = await self._partition(name, index, slices)
            topics[name].append(described)
        return DescribeProducersResponse(
            topics=[TopicResponse(name=name, partitions=partitions) for name, partitions in topics.items()]
        )

    async def _partition(self, topic: str, index: int, slices: Slices) -> PartitionResponse:
        problem = topic_name_problem(topic)
        if problem is not None:
            return _refusal(index, ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem))
        try:
            producers = self._replicas.partition(topic, index).log.producer_state.capture()
        except ApiError as error:
            return _refusal(index, error)
        described = PartitionResponse(
            partition_index=index,
            error_code=ErrorCode.NONE,
            active_producers=[_described(entry) async for entry in slices.of(producers)],
        )
        await release([producers])
        return described


def _described(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_txn_first_offset,
    )


def _refusal(index: int, error: ApiError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message, active_producers=[]
    )
