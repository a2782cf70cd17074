"""InitProducerId (key 22, versions 0-4): an id for an idempotent producer, at epoch 0.  KIP-98.

Any broker answers.  A producer that lost its place (KIP-360) names the id and epoch that it had; without transactions
it simply gets a fresh id.

Not done: transactional ids, which answer INVALID_REQUEST.
"""

from __future__ import annotations

import logging

from kctl.errors import ErrorCode, ZooKeeperError
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kctl.server.producer_ids import ProducerIds
from kctl.server.requests.context import RequestContext

log = logging.getLogger(__name__)


class InitProducerIdHandler:
    """Owner: event loop."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    async def handle(self, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
        if request.transactional_id is not None:
            return _refused(ErrorCode.INVALID_REQUEST)
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            return _refused(ErrorCode.INVALID_REQUEST)
        try:
            producer_id = await self._producer_ids.next()
        except ZooKeeperError as error:
            log.warning("no producer id could be had: %s", error)
            return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
