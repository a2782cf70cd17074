"""Where a follower truncates its log after a change of leader.  KIP-101, KIP-279.

A follower's high watermark lags behind, so truncating there would lose acknowledged records, and not truncating would
keep records that the new leader never had.  Leader epochs show exactly where two logs diverge: the follower queries the
leader where the follower's last epoch ends, and goes back epoch by epoch until both logs have the same epoch.

Pure.
"""

from __future__ import annotations

from typing import NamedTuple

UNDEFINED = -1


class Truncation(NamedTuple):
    """Truncate to `offset`; if not `is_final`, query the leader again about the epoch that is the last one then."""

    offset: int
    is_final: bool


def truncation(
    *,
    leader_epoch: int,
    leader_end_offset: int,
    own_epoch: int,
    own_end_offset: int,
    log_end_offset: int,
    high_watermark: int,
) -> Truncation:
    """Evaluates the leader's response to OffsetForLeaderEpoch: the end offset of the follower's last epoch.

    `leader_epoch` and `leader_end_offset` are from the response; `own_epoch` is the largest epoch in this log not above
    `leader_epoch`, and `own_end_offset` its end here.  UNDEFINED means unknown.
    Kafka: AbstractFetcherThread.getOffsetTruncationState.
    """
    if leader_end_offset == UNDEFINED:
        # The leader does not support epochs: use the high watermark.
        return Truncation(min(high_watermark, log_end_offset), is_final=True)
    if leader_epoch == UNDEFINED:
        return Truncation(min(leader_end_offset, log_end_offset), is_final=True)
    if own_end_offset == UNDEFINED:
        return Truncation(min(leader_end_offset, log_end_offset), is_final=True)
    if own_epoch != leader_epoch:
        return Truncation(min(own_end_offset, log_end_offset), is_final=False)
    return Truncation(min(own_end_offset, leader_end_offset, log_end_offset), is_final=True)
