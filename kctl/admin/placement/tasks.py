"""Plans whole tasks, which continue what an earlier run of the same command has started.  Pure.

A partition that is being moved counts with the replicas that it will have, so that a second run plans only what is
left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kctl.admin.placement.documents import Assignment
from kctl.admin.placement.reassignment import Ongoing
from kctl.admin.placement.state import PlacementState, broker_changes
from kctl.client.metadata import ClusterMetadata
from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.output.quantities import counted


def settled(state: PlacementState, ongoing: Mapping[TopicPartition, Ongoing]) -> PlacementState:
    """Return the state after the reassignments in progress."""
    return replace(state, replicas={**state.replicas, **{tp: move.target for tp, move in ongoing.items()}})


def task_targets(
    state: PlacementState,
    ongoing: Mapping[TopicPartition, Ongoing],
    plan: Callable[[PlacementState], Assignment],
    belongs: Callable[[TopicPartition, Ongoing], bool],
) -> Assignment:
    """Return the targets of a task: what `plan` changes, and the moves in progress that belong to it.

    Raises KctlError if the plan is impossible, or a broker has too little space.
    """
    after = settled(state, ongoing)
    planned = plan(after)
    check_space(after, planned)
    continued = {tp: move.target for tp, move in ongoing.items() if tp not in planned and belongs(tp, move)}
    return dict(sorted({**planned, **continued}.items()))


def check_space(state: PlacementState, targets: Assignment) -> None:
    """Raise KctlError if a broker receives more than it has free."""
    for change in broker_changes(state, targets):
        if change.lacks_space:
            received, free = (counted(size or 0, "byte") for size in (change.bytes_received, change.free_bytes))
            raise KctlError(
                f"broker {change.broker} would receive {received} and has {free} free: free space on it "
                "('kctl cluster log-dirs' shows what is large), or plan with other brokers ('kctl reassign plan')"
            )


def left_on(metadata: ClusterMetadata, broker: int) -> list[TopicPartition]:
    """Return the partitions with a replica on the broker, or led by it."""
    return [
        TopicPartition(topic.name, partition.partition)
        for topic in metadata.topics.values()
        for partition in topic.partitions
        if broker in partition.replicas or partition.leader == broker
    ]


def too_few_for_writes(factor: int, minimums: Mapping[str, int]) -> dict[str, int]:
    """Return the topics whose min.insync.replicas is larger than the replication factor, and that number."""
    return {name: minimum for name, minimum in sorted(minimums.items()) if minimum > factor}
