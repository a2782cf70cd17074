"""DescribeTransactions (key 65, version 0): state, producer and partitions of transactions, from their coordinator.

Each id has its own result; an unknown one gets TRANSACTIONAL_ID_NOT_FOUND.  While markers are being written, the
result lists the partitions whose marker is not written yet.  KIP-664; newer than Kafka 2.8.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.limits import DESCRIBED_BYTES_MAX
from kctl.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.coordination.transactions.events import TransactionSnapshot
from kctl.server.loop.slices import Slices, size_of_id
from kctl.server.requests.context import RequestContext

_PARTITION_BYTES = 8


class DescribeTransactionsHandler:
    """Serves DescribeTransactions requests.  Owner: event loop."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(
        self, request: DescribeTransactionsRequest, context: RequestContext
    ) -> DescribeTransactionsResponse:
        """Serve one request and return the response."""
        slices = Slices()
        left = DESCRIBED_BYTES_MAX
        states: list[TransactionState] = []
        async for transactional_id in slices.of(dict.fromkeys(request.transactional_ids), size_of_id):
            if left < 0:
                states.append(_refused(transactional_id, ErrorCode.INVALID_REQUEST))
                continue
            state = await self._describe(transactional_id, context, slices)
            left -= len(transactional_id) + _PARTITION_BYTES * sum(len(topic.partitions) for topic in state.topics)
            states.append(state)
        return DescribeTransactionsResponse(transaction_states=states)

    async def _describe(self, transactional_id: str, context: RequestContext, slices: Slices) -> TransactionState:
        if not context.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return _refused(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        error, snapshot = self._coordinator.describe(transactional_id)
        if snapshot is None:
            return _refused(transactional_id, error)
        return TransactionState(
            error_code=ErrorCode.NONE,
            transactional_id=transactional_id,
            transaction_state=snapshot.state.label,
            transaction_timeout_ms=snapshot.timeout_ms,
            transaction_start_time_ms=snapshot.start_ms,
            producer_id=snapshot.producer.producer_id,
            producer_epoch=snapshot.producer.epoch,
            topics=await _topics(snapshot, context, slices),
        )


def _refused(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


async def _topics(snapshot: TransactionSnapshot, context: RequestContext, slices: Slices) -> list[TopicData]:
    """Return the partitions of topics that the client may describe."""
    topic_names = {topic for topic, _ in snapshot.partitions}
    hidden = context.denied(Operation.DESCRIBE, ResourceType.TOPIC, topic_names, is_logged=False)
    topics: dict[str, TopicData] = {}
    async for topic, index in slices.of(snapshot.partitions):
        if topic in hidden:
            continue
        topics.setdefault(topic, TopicData(topic=topic, partitions=[])).partitions.append(index)
    return list(topics.values())
