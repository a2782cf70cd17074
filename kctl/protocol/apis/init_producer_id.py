"""InitProducerId (key 22, versions 0-5): allocates a producer id and epoch for idempotence or transactions (KIP-98).

2: flexible.  3: `producer_id` and `producer_epoch`, to recover from errors with a new epoch (KIP-360).  4:
PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH.  5: TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from kctl.protocol.message import int16, int32, int64, request, response, string


@request(key=22, versions="0-5", flexible="2+", sent="0-4")
class InitProducerIdRequest:
    """Sent to the transaction coordinator; without a transactional id to any broker.

    With a transactional id, earlier producers of that id are fenced and their open transaction is aborted.
    """

    transactional_id: str | None = string(nullable="0+")
    """Null for a producer that is only idempotent."""
    transaction_timeout_ms: int = int32()
    """After this time the coordinator aborts an open transaction; ignored without a transactional id."""
    producer_id: int = int64("3+", default=-1)
    """The producer's current id, to raise its epoch; -1 for a new producer."""
    producer_epoch: int = int16("3+", default=-1)
    """The producer's current epoch; -1 for a new producer."""


@response(key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse:
    """The producer id and epoch to use."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    """-1 on an error."""
    producer_epoch: int = int16()
