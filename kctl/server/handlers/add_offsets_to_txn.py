"""AddOffsetsToTxn (key 25, versions 0-4): a producer is about to commit offsets of a group in its transaction.

Adds the group's partition of `__consumer_offsets`; the commits themselves are sent to the group's coordinator, by
TxnOffsetCommit.  While the topic does not exist, uses the partition that it will have.

Version notes: 2 PRODUCER_FENCED, which older versions replace by INVALID_PRODUCER_EPOCH (KIP-588); 3 flexible.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kctl.errors import ErrorCode
from kctl.model import GROUP_METADATA_TOPIC, ProducerIdAndEpoch, TopicPartition, partition_for_key
from kctl.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.replies import then
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.coordination.transactions.ports import known_to
from kctl.server.requests.context import RequestContext

FIRST_VERSION_WITH_PRODUCER_FENCED = 2


class AddOffsetsToTxnHandler:
    """Serves AddOffsetsToTxn requests.  Owner: event loop."""

    def __init__(self, coordinator: TransactionCoordinator, offsets_partition_count: Callable[[], int]) -> None:
        self._coordinator = coordinator
        self._offsets_partition_count = offsets_partition_count

    def handle(
        self, request: AddOffsetsToTxnRequest, context: RequestContext
    ) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
        """Serve one request: return the response, or an awaitable if it has to wait."""
        if not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
            return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        partition = partition_for_key(request.group_id, self._offsets_partition_count())
        outcome = self._coordinator.add_partitions(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            [TopicPartition(GROUP_METADATA_TOPIC, partition)],
        )

        def response(error: ErrorCode) -> AddOffsetsToTxnResponse:
            known_error = known_to(context.api_version, error, fenced_since=FIRST_VERSION_WITH_PRODUCER_FENCED)
            return AddOffsetsToTxnResponse(error_code=known_error)

        return then(outcome, response)
