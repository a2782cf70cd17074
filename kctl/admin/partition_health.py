"""What can be wrong with a partition, seen from outside.  Pure; Kafka's TopicCommand (2.8) counts the same way."""

from __future__ import annotations

from collections.abc import Container
from enum import Enum
from typing import TYPE_CHECKING

from kctl.client.metadata import Partition

if TYPE_CHECKING:
    from kctl.admin.reassignment import Ongoing

MIN_INSYNC_REPLICAS = "min.insync.replicas"


class PartitionProblem(Enum):
    """What is wrong, the worst first."""

    UNAVAILABLE = "unavailable"
    """Nobody leads it, or nobody who is alive: it can neither be written nor read."""
    UNDER_MIN_ISR = "under min ISR"
    """Fewer replicas are in sync than min.insync.replicas asks for: acks=all is refused."""
    UNDER_REPLICATED = "under-replicated"
    """Some replicas are not in sync."""


def problems_of(
    partition: Partition,
    live: Container[int],
    *,
    min_insync_replicas: int | None = None,
    ongoing: Ongoing | None = None,
) -> list[PartitionProblem]:
    """All that is wrong with it.  Without min_insync_replicas nothing is said about that."""
    has_leader = partition.leader >= 0
    found = []
    if not has_leader or partition.leader not in live:
        found.append(PartitionProblem.UNAVAILABLE)
    if min_insync_replicas is not None and (not has_leader or len(partition.isr) < min_insync_replicas):
        found.append(PartitionProblem.UNDER_MIN_ISR)
    if len(partition.isr) < _replication_factor(partition, ongoing):
        found.append(PartitionProblem.UNDER_REPLICATED)
    return found


def _replication_factor(partition: Partition, ongoing: Ongoing | None) -> int:
    """Replicas that a move is still filling do not count, unless the move has ended since it was asked about."""
    if ongoing is not None and {*ongoing.adding, *ongoing.removing}.intersection(partition.replicas):
        return len(ongoing.origin)
    return len(partition.replicas)
