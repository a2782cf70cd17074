"""AddOffsetsToTxn (key 25, versions 0-4): adds a group's partition of __consumer_offsets to a transaction (KIP-98).

2: PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH.  3: flexible.  4: TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from kctl.protocol.message import int16, int32, int64, request, response, string


@request(key=25, versions="0-4", flexible="3+", sent="0-3")
class AddOffsetsToTxnRequest:
    """Sent to the transaction coordinator before the producer's first TxnOffsetCommit for a group."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()
    """The group whose offsets will be committed; its hash gives the partition."""


@response(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """Reports success or the error for the transaction."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
