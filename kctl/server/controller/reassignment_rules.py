"""Rules of reassignments: a partition's replicas change while it is written and read.  KIP-455.

The topic's node holds the whole state, so that another controller can continue:
  replicas   all current replicas, target replicas first
  adding     replicas that the reassignment adds
  removing   replicas that the reassignment removes
target = replicas - removing; origin = replicas - adding.

Begin: write the union, start the new replicas as followers.  Complete, once all target replicas are in sync: write only
these as replicas, elect one of them, delete the removed replicas' logs.  Cancel: reassign to the origin.  Each step is
written to ZooKeeper before requests are sent to brokers; the functions here only compute what to write and send.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.server.controller.state import ControllerState
from kctl.zookeeper.znodes import TopicAssignment


class PartitionChange(NamedTuple):
    """What the node of a topic has about a partition after a step of its reassignment."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def target_replicas(assignment: TopicAssignment, partition: int) -> tuple[int, ...]:
    """The replicas after the reassignment."""
    removing = assignment.removing_replicas.get(partition, ())
    return tuple(r for r in assignment.replicas[partition] if r not in removing)


def origin_replicas(assignment: TopicAssignment, partition: int) -> tuple[int, ...]:
    """The replicas before the reassignment."""
    adding = assignment.adding_replicas.get(partition, ())
    return tuple(r for r in assignment.replicas[partition] if r not in adding)


def is_reassigning(assignment: TopicAssignment, partition: int) -> bool:
    """True while replicas are being added or removed."""
    return bool(assignment.adding_replicas.get(partition) or assignment.removing_replicas.get(partition))


def reassigning(state: ControllerState, topics: Iterable[str] | None = None) -> Iterable[TopicPartition]:
    """The partitions of these or all topics that are under reassignment."""
    named = state.topics if topics is None else state.topics.keys() & topics
    moving = [t for t in named if state.topics[t].adding_replicas or state.topics[t].removing_replicas]
    for topic in sorted(moving):
        assignment = state.topics[topic]
        moved = assignment.adding_replicas.keys() | assignment.removing_replicas.keys()
        for partition in sorted(moved):
            if is_reassigning(assignment, partition) and partition in assignment.replicas:
                yield TopicPartition(topic, partition)


def refusal(
    state: ControllerState, topic_partition: TopicPartition, requested: Sequence[int] | None
) -> ApiError | None:
    """Why the partition cannot be reassigned to `requested`, or None; `requested` None cancels.

    The replicas are checked before the partition, as by Kafka 2.8 (KafkaController.processApiPartitionReassignment).
    """
    topic, partition = topic_partition
    assignment = state.topics.get(topic)
    present = () if assignment is None else assignment.replicas.get(partition, ())
    problem = None if requested is None else _problem(state, present, requested)
    if problem is not None:
        return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    if requested is None and (assignment is None or not is_reassigning(assignment, partition)):
        return ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    if assignment is None or partition not in assignment.replicas:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic_partition}.")
    if topic in state.deleting:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic} is being deleted.")
    problem = _loss(state, topic_partition, begun(assignment, partition, requested).replicas)
    return None if problem is None else ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _problem(state: ControllerState, replicas: Sequence[int], requested: Sequence[int]) -> str | None:
    listed = ", ".join(map(str, requested))
    if not requested:
        return "The list of replicas is empty."
    if len(set(requested)) < len(requested):
        return f"A broker is listed twice in the replicas: {listed}."
    if min(requested) < 0:
        return f"The replicas contain an invalid broker id: {listed}."
    dead = sorted(set(requested) - set(replicas) - state.brokers.keys())
    if dead:
        live = ", ".join(map(str, sorted(state.brokers)))
        return f"Not alive among the replicas to add: {', '.join(map(str, dead))}; live brokers: {live}."
    return None


def _loss(state: ControllerState, topic_partition: TopicPartition, replicas: Sequence[int]) -> str | None:
    """The problem if only replicas of an earlier reassignment are in sync.  Apache Kafka refuses that since KRaft."""
    known = state.leaders.get(topic_partition)
    if known is None or any(broker_id in replicas for broker_id in known.isr):
        return None
    return f"Only {', '.join(map(str, known.isr))} is in sync, and would no longer be a replica."


def begun(assignment: TopicAssignment, partition: int, requested: Sequence[int] | None) -> PartitionChange:
    """The change that starts the reassignment."""
    origin = origin_replicas(assignment, partition)
    target = tuple(requested) if requested is not None else origin
    union = target + tuple(r for r in origin if r not in target)
    return PartitionChange(
        replicas=union,
        adding=tuple(r for r in target if r not in origin),
        removing=tuple(r for r in origin if r not in target),
    )


def completed(assignment: TopicAssignment, partition: int) -> PartitionChange:
    """The change that completes the reassignment."""
    return PartitionChange(replicas=target_replicas(assignment, partition), adding=(), removing=())


def is_complete(assignment: TopicAssignment, partition: int, isr: Collection[int]) -> bool:
    """True if all target replicas are in sync."""
    return set(target_replicas(assignment, partition)) <= set(isr)


def changed(assignment: TopicAssignment, changes: Mapping[int, PartitionChange]) -> TopicAssignment:
    """The assignment with changes of some of its partitions."""
    return replace(
        assignment,
        replicas={**assignment.replicas, **{partition: each.replicas for partition, each in changes.items()}},
        adding_replicas=_without_empty(assignment.adding_replicas, {p: each.adding for p, each in changes.items()}),
        removing_replicas=_without_empty(
            assignment.removing_replicas, {p: each.removing for p, each in changes.items()}
        ),
    )


def _without_empty(
    known: Mapping[int, tuple[int, ...]], changes: Mapping[int, tuple[int, ...]]
) -> Mapping[int, tuple[int, ...]]:
    return {p: replicas for p, replicas in {**known, **changes}.items() if replicas}
