"""InitProducerId (key 22, versions 0-4): a producer id and epoch for idempotence or transactions.

With a transactional id, earlier producers of that id are fenced off and their open transaction is aborted.

2: flexible.  3: the present id and epoch, to recover from errors by a new epoch (KIP-360).  4: PRODUCER_FENCED.
"""

from __future__ import annotations

from kctl.protocol.message import int16, int32, int64, request, response, string


@request(key=22, versions="0-4", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


@response(key=22, versions="0-4", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
