"""ListTransactions (key 66, versions 0-1): the transactional ids that this broker coordinates.

Empty filters match everything; unknown state names are returned.  While a partition of the state topic loads, there is
no list, only COORDINATOR_LOAD_IN_PROGRESS.  KIP-664; newer than Kafka 2.8.

Version notes: 1 transactions that have run for longer than a duration (KIP-994).
"""

from __future__ import annotations

from kctl.limits import SLICE_OBJECTS
from kctl.protocol.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.loop.slices import release, sliced
from kctl.server.requests.context import RequestContext


class ListTransactionsHandler:
    """Serves ListTransactions requests.  Owner: event loop."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(self, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
        """Serve one request and return the response."""
        error, unknown, found = await self._coordinator.transactions(
            request.state_filters, set(request.producer_id_filters), longer_than_ms=request.duration_filter
        )
        states = [
            TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.label,
            )
            async for transaction in sliced(found, SLICE_OBJECTS)
            if not _is_denied(transaction.transactional_id, context)
        ]
        await release([found])
        return ListTransactionsResponse(error_code=error, unknown_state_filters=unknown, transaction_states=states)


def _is_denied(transactional_id: str, context: RequestContext) -> bool:
    resource = ResourceType.TRANSACTIONAL_ID
    return bool(context.denied(Operation.DESCRIBE, resource, (transactional_id,), is_logged=False))
