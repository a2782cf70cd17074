"""Where a follower cuts its log after a change of leader.  KIP-101, KIP-279.

High watermarks of a follower lag behind, so cutting there loses records that were acknowledged, and not cutting keeps
records that the new leader never had.  Leader epochs tell exactly where two logs part: the follower asks the leader
where the follower's last epoch ends, and goes back epoch by epoch until both know the same one.

Pure.
"""

from __future__ import annotations

from typing import NamedTuple

UNDEFINED = -1


class Truncation(NamedTuple):
    """Cut to `offset`; when not `is_final`, ask the leader again about the epoch that is the last then."""

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
    """What follows from the leader's answer to "where does my last epoch end".

    `leader_epoch` and `leader_end_offset` are the answer; `own_epoch` and `own_end_offset` are the largest epoch not
    above `leader_epoch` that this log knows, and where it ends here.  UNDEFINED stands for "does not know".
    AbstractFetcherThread.getOffsetTruncationState.
    """
    if leader_end_offset == UNDEFINED:
        # A leader that knows no epochs: all that is left is the high watermark.
        return Truncation(min(high_watermark, log_end_offset), is_final=True)
    if leader_epoch == UNDEFINED:
        return Truncation(min(leader_end_offset, log_end_offset), is_final=True)
    if own_end_offset == UNDEFINED:
        return Truncation(min(leader_end_offset, log_end_offset), is_final=True)
    if own_epoch != leader_epoch:
        return Truncation(min(own_end_offset, log_end_offset), is_final=False)
    return Truncation(min(own_end_offset, leader_end_offset, log_end_offset), is_final=True)
