"""Health problems of a partition, by the criteria of Kafka's TopicCommand (2.8).  Pure."""

from __future__ import annotations

from collections.abc import Container
from enum import Enum
from typing import TYPE_CHECKING

from kctl.client.metadata import Partition

if TYPE_CHECKING:
    from kctl.admin.reassignment import Ongoing

MIN_INSYNC_REPLICAS = "min.insync.replicas"


class PartitionProblem(Enum):
    """Kinds of problems, the most severe first."""

    UNAVAILABLE = "unavailable"
    """No live leader: the partition can be neither written nor read."""
    UNDER_MIN_ISR = "under min ISR"
    """Fewer in-sync replicas than min.insync.replicas: writes with acks=all are refused."""
    UNDER_REPLICATED = "under-replicated"
    """Some replicas are not in sync."""
    AT_MIN_ISR = "at min ISR"
    """As many in-sync replicas as min.insync.replicas: if one more fails, writes with acks=all are refused.  Only
    `partitions_with_problems` reports it, because a partition with one replica is always in this state.
    """


def problems_of(
    partition: Partition,
    live: Container[int],
    *,
    min_insync_replicas: int | None = None,
    ongoing: Ongoing | None = None,
) -> list[PartitionProblem]:
    """All problems of the partition.  Without `min_insync_replicas` that limit is not checked."""
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
    """Replication factor without replicas being added, unless the reassignment has ended since it was listed."""
    if ongoing is not None and {*ongoing.adding, *ongoing.removing}.intersection(partition.replicas):
        return len(ongoing.origin)
    return len(partition.replicas)
