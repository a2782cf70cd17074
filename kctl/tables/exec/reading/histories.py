"""Whether the logs of a topic still have the history from which records were exported (KIP-320).

A history is the high watermark of a log and the epoch of its leader, from one ListOffsets response: the log had all
records up to that high watermark.  The leader's answer includes the records of all earlier leaders (KIP-207), so the
high watermark is not before the start of its epoch, and a log that lacks the epoch parts from it there or before.
"""

from __future__ import annotations

from collections.abc import Mapping

from kctl.client.cluster import ClusterClient
from kctl.client.consuming.positions import NO_EPOCH, Divergence, check_positions
from kctl.client.consuming.positions import Position as History
from kctl.client.leaders import Outcomes
from kctl.client.metadata import ClusterMetadata
from kctl.errors import ApiError
from kctl.model import TopicPartition

UNKNOWN_HISTORY = History(-1)
"""Of a position of an earlier version, or of a broker that does not tell leader epochs."""


def history_of(high_watermark: int, leader_epoch: int) -> History:
    """Return the history of a log with this high watermark, as its leader told it: the last record may be of an earlier
    epoch.
    """
    return UNKNOWN_HISTORY if leader_epoch == NO_EPOCH else History(high_watermark, leader_epoch, is_of_leader=True)


def affects(divergence: Divergence, end: int) -> bool:
    """Return whether the histories part before an offset; they may have been compared up to a later one."""
    return end > 0 and (divergence.end_offset is None or divergence.end_offset < end)


async def find_divergences(
    client: ClusterClient,
    histories: Mapping[TopicPartition, History],
    current_epochs: Mapping[TopicPartition, int],
    *,
    known: ClusterMetadata | None = None,
) -> Outcomes[Divergence]:
    """Return where the leaders' logs part from the histories, or the error of a partition; only these partitions.

    A leader does not lose its history while its epoch lasts, so it is asked only if its epoch in `current_epochs` is
    another one.  Raises ClusterUnreachable.
    """
    due = {
        tp: history
        for tp, history in histories.items()
        if NO_EPOCH not in {history.leader_epoch, current_epochs.get(tp, NO_EPOCH)}
        and history.leader_epoch != current_epochs[tp]
    }
    if not due:
        return {}
    outcomes = await check_positions(client, due, known=known)
    found: Outcomes[Divergence] = {
        tp: outcome for tp, outcome in outcomes.items() if isinstance(outcome, (ApiError, Divergence))
    }
    absent = {
        tp for tp, divergence in found.items() if isinstance(divergence, Divergence) and divergence.end_offset is None
    }
    if absent:
        # A log with messages of formats before 2 has no epochs, so that its leader does not find its own either.
        own = {tp: History(0, current_epochs[tp]) for tp in absent}
        for tp, outcome in (await check_positions(client, own, known=known)).items():
            if isinstance(outcome, Divergence):
                del found[tp]
    return found
