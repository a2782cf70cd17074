"""ListTransactions (key 66, version 0): the transactional ids that this broker coordinates.

Empty filters match everything; unknown state names are returned.  While a partition of the state topic loads, there is
no list, only COORDINATOR_LOAD_IN_PROGRESS.  KIP-664; newer than Kafka 2.8.
"""

from __future__ import annotations

from kctl.protocol.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.loop.slices import in_slices, release
from kctl.server.requests.context import RequestContext


class ListTransactionsHandler:
    """Serves ListTransactions requests.  Owner: event loop."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(self, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
        """Serves one request and returns the response."""
        error, unknown, found = await self._coordinator.transactions(
            request.state_filters, set(request.producer_id_filters)
        )
        states = await in_slices(
            None
            if context.denied(
                Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, (each.transactional_id,), is_logged=False
            )
            else TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.label,
            )
            for each in found
        )
        await release([found])
        return ListTransactionsResponse(
            error_code=error,
            unknown_state_filters=unknown,
            transaction_states=[state for state in states if state is not None],
        )
