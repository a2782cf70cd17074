"""ListTransactions (key 66, versions 0-2): the transactional ids that this broker coordinates (KIP-664).

New in Kafka 3.0.  Flexible from the start.  1: a filter by duration (KIP-994).  2: a pattern (KIP-1152).
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct


@request(key=66, versions="0-2", flexible="0+", sent="0")
class ListTransactionsRequest:
    """Sent to each broker to list all transactions of a cluster.  Empty filters match everything."""

    state_filters: list[str] = array(string)
    """Names of states; empty for all."""
    producer_id_filters: list[int] = array(int64)
    """Empty for all producers."""
    duration_filter: int = int64("1+", default=-1)
    """Only transactions that have run for longer, in ms; negative for all."""
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)
    """A regular expression of RE2 that the whole transactional id matches; null or empty for all."""


@struct
class TransactionState:
    """A transactional id; DescribeTransactions lists the states."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@response(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """The transactional ids that match the filters."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    """States of the filter that are unknown to this broker."""
    transaction_states: list[TransactionState] = array(TransactionState)
