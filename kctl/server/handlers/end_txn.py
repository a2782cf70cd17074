"""EndTxn (key 26, versions 0-5): a producer commits or aborts its transaction.

The response is sent as soon as the decision is in the coordinator's log; the markers follow, and until they are written
the producer's next requests get CONCURRENT_TRANSACTIONS.  A repeated request for the same decision succeeds.

Version notes: 2 PRODUCER_FENCED, which older versions replace by INVALID_PRODUCER_EPOCH (KIP-588); 3 flexible; 5 raises
the producer's epoch, or replaces its id, and responds with both (KIP-890).  Below level 2 of
transaction.version these are the present ones.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch
from kctl.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.replies import then
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.coordination.transactions.events import ProducerOutcome
from kctl.server.coordination.transactions.ports import known_to
from kctl.server.requests.context import RequestContext

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_WITH_RAISED_EPOCH = 5


class EndTxnHandler:
    """Serves EndTxn requests.  Owner: event loop."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def handle(self, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse | Awaitable[EndTxnResponse]:
        """Serve one request: return the response, or an awaitable if it has to wait."""
        if not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        has_producer = context.api_version >= FIRST_VERSION_WITH_RAISED_EPOCH
        if has_producer and self._coordinator.raises_epoch(request.transactional_id):
            raised = self._coordinator.end_and_raise(request.transactional_id, producer, committed=request.committed)
            return then(raised, _with_producer)
        outcome = self._coordinator.end(request.transactional_id, producer, committed=request.committed)

        def response(error: ErrorCode) -> EndTxnResponse:
            known_error = known_to(context.api_version, error, fenced_since=FIRST_VERSION_WITH_PRODUCER_FENCED)
            if has_producer and error is ErrorCode.NONE:
                return _with_producer(ProducerOutcome(error, producer))
            return EndTxnResponse(error_code=known_error)

        return then(outcome, response)


def _with_producer(outcome: ProducerOutcome) -> EndTxnResponse:
    producer = outcome.producer
    return EndTxnResponse(error_code=outcome.error, producer_id=producer.producer_id, producer_epoch=producer.epoch)
