"""EndTxn (key 26, versions 0-3): commit or abort a transaction.

Answered as soon as the decision is stored; the markers in the partitions follow.  2: PRODUCER_FENCED.  3: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import boolean, int16, int32, int64, request, response, string


@request(key=26, versions="0-3", flexible="3+")
class EndTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@response(key=26, versions="0-3", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
