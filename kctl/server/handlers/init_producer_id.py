"""InitProducerId (key 22, versions 0-5): an id and epoch for an idempotent or a transactional producer.

Without a transactional id, any broker responds with a new id (KIP-98).  With one, its coordinator responds with the
next epoch, which fences earlier producers of the id and aborts their transaction; until the abort is complete,
CONCURRENT_TRANSACTIONS.  A producer that recovers from an error sends its current id and epoch (KIP-360).

Version notes: 2 flexible; 3 current id and epoch; 4 PRODUCER_FENCED, which older versions replace by
INVALID_PRODUCER_EPOCH (KIP-588).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from kctl.errors import ErrorCode, ZooKeeperError
from kctl.model import ProducerIdAndEpoch
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kctl.security.acls import CLUSTER_NAME, Operation, ResourceType
from kctl.server.coordination.replies import then
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.coordination.transactions.events import ProducerOutcome
from kctl.server.coordination.transactions.ports import known_to
from kctl.server.coordination.transactions.producer_ids import ProducerIds
from kctl.server.requests.context import RequestContext

log = logging.getLogger(__name__)

NONE_YET = -1
FIRST_VERSION_WITH_PRODUCER_FENCED = 4


class InitProducerIdHandler:
    """Serves InitProducerId requests.  Owner: event loop."""

    def __init__(self, producer_ids: ProducerIds, coordinator: TransactionCoordinator) -> None:
        self._producer_ids = producer_ids
        self._coordinator = coordinator

    def handle(
        self, request: InitProducerIdRequest, context: RequestContext
    ) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
        """Serve one request: return the response, or an awaitable if it has to wait."""
        refusal = _refusal(request, context)
        if refusal is not None:
            return _response(ProducerOutcome(refusal), context.api_version)
        if (request.producer_id == NONE_YET) != (request.producer_epoch == NONE_YET):
            return _response(ProducerOutcome(ErrorCode.INVALID_REQUEST), context.api_version)
        if request.transactional_id is None:
            return self._idempotent(context.api_version)
        outcome = self._coordinator.init_producer(
            request.transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            expected=_expected(request),
        )
        return then(outcome, lambda settled: _response(settled, context.api_version))

    async def _idempotent(self, version: int) -> InitProducerIdResponse:
        try:
            producer_id = await self._producer_ids.next()
        except ZooKeeperError as error:
            log.warning("cannot allocate a producer id, the client has to retry error=%s", error)
            return _response(ProducerOutcome(ErrorCode.COORDINATOR_NOT_AVAILABLE), version)
        return _response(ProducerOutcome(ErrorCode.NONE, ProducerIdAndEpoch(producer_id, 0)), version)


def _refusal(request: InitProducerIdRequest, context: RequestContext) -> ErrorCode | None:
    """Return the authorization error, if any.

    Since 2.8 WRITE on any topic permits an idempotent producer (KIP-679).
    """
    if request.transactional_id is not None:
        is_allowed = context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        return None if is_allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if context.denied(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, (CLUSTER_NAME,), is_logged=False):
        is_allowed = context.allows_on_any(Operation.WRITE, ResourceType.TOPIC)
        return None if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None


def _expected(request: InitProducerIdRequest) -> ProducerIdAndEpoch | None:
    if request.producer_id == NONE_YET:
        return None
    return ProducerIdAndEpoch(request.producer_id, request.producer_epoch)


def _response(outcome: ProducerOutcome, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=known_to(version, outcome.error, fenced_since=FIRST_VERSION_WITH_PRODUCER_FENCED),
        producer_id=outcome.producer.producer_id,
        producer_epoch=outcome.producer.epoch,
    )
