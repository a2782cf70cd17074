"""EndTxn (key 26, versions 0-5): commits or aborts a transaction (KIP-98).

2: PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH.  3: flexible.  4: TRANSACTION_ABORTABLE.  5: each end of a
transaction raises the epoch (KIP-890).
"""

from __future__ import annotations

from kctl.protocol.message import boolean, int16, int32, int64, request, response, string


@request(key=26, versions="0-5", flexible="3+", sent="0-3")
class EndTxnRequest:
    """Sent to the transaction coordinator."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()
    """True to commit, False to abort."""


@response(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    """Sent when the decision is stored; the markers are written to the partitions after that."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    """The producer id and epoch for the next transaction; -1 on an error."""
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
