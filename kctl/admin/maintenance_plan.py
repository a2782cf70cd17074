"""Plans the maintenance of a broker: which partitions it must not lead meanwhile, and how they get their leaders back.

Pure.  Only the order of replicas changes: the broker becomes the last, so that no election prefers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kctl.admin.outcome import absent_broker
from kctl.admin.reassignment_plan import partition_of
from kctl.admin.reassignment_spec import Assignment
from kctl.client.metadata import ClusterMetadata, Partition
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Handover:
    """A partition that the broker leads or would lead after a preferred election."""

    tp: TopicPartition
    leader: int
    current: tuple[int, ...]
    target: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MaintenancePlan:
    """The changes of `on`, and the partitions that prevent them."""

    handovers: list[Handover]
    unavailable: list[TopicPartition]
    """Partitions whose only in-sync replica is on the broker."""

    @property
    def targets(self) -> Assignment:
        """The new order of replicas, of the partitions where it changes."""
        return {one.tp: one.target for one in self.handovers if one.target != one.current}

    @property
    def origins(self) -> Assignment:
        """The present order of the same partitions."""
        return {one.tp: one.current for one in self.handovers if one.target != one.current}


def plan_maintenance(metadata: ClusterMetadata, broker: int) -> MaintenancePlan:
    """Plans to move leadership from a live broker to the next in-sync replica.  Raises ApiError if it is dead."""
    if broker not in metadata.brokers:
        raise absent_broker(broker, metadata.brokers)
    handovers, unavailable = [], []
    for topic in metadata.topics.values():
        for one in topic.partitions:
            tp = TopicPartition(topic.name, one.partition)
            if broker not in one.replicas:
                continue
            if not [other for other in one.isr if other != broker and other in metadata.brokers]:
                unavailable.append(tp)
            elif one.leader == broker or one.replicas[0] == broker:
                handovers.append(Handover(tp, one.leader, one.replicas, _order_without(one, broker, metadata)))
    return MaintenancePlan(handovers, unavailable)


def _order_without(partition: Partition, broker: int, metadata: ClusterMetadata) -> tuple[int, ...]:
    """The broker last, and a live in-sync replica first; the order of the others stays."""
    others = [one for one in partition.replicas if one != broker]
    first = next(one for one in others if one in partition.isr and one in metadata.brokers)
    return (first, *(one for one in others if one != first), broker)


@dataclass(frozen=True, slots=True)
class ReturnPlan:
    """The changes of `off`."""

    targets: Assignment
    """The previous order of replicas, of the partitions that still have the same replicas."""
    waiting: list[TopicPartition]
    """Partitions for which the broker is not in sync yet."""
    changed: list[TopicPartition]
    """Partitions that have other replicas than before, or were deleted; their order stays."""


def plan_return(metadata: ClusterMetadata, broker: int, saved: Mapping[TopicPartition, tuple[int, ...]]) -> ReturnPlan:
    """Plans to restore the saved order of replicas.  Raises ApiError if the broker is not alive."""
    if broker not in metadata.brokers:
        raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not alive: start it first")
    plan = ReturnPlan({}, [], [])
    for tp, replicas in sorted(saved.items()):
        now = partition_of(metadata, tp)
        if now is None or sorted(now.replicas) != sorted(replicas):
            plan.changed.append(tp)
        elif broker not in now.isr:
            plan.waiting.append(tp)
        else:
            plan.targets[tp] = tuple(replicas)
    return plan
