"""AddOffsetsToTxn (key 25, versions 0-3): a transaction is going to commit offsets of a group.

2: PRODUCER_FENCED.  3: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import int16, int32, int64, request, response, string


@request(key=25, versions="0-3", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@response(key=25, versions="0-3", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
