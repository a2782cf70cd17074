"""Moving replicas: a partition's replicas are changed while it is led and read.  KIP-455.

The topic's node holds the whole state, so that another controller can go on:
  replicas   all that replicate now, the target ones first
  adding     those that did not before
  removing   those that will not any more
target = replicas - removing; origin = replicas - adding.

Begin: write the union, tell the new replicas to follow.  Complete, once all target replicas are in sync: only they are
left in the books, one of them leads, the removed ones delete their logs.  Cancel: reassign to the origin.
The caller of each step writes before it tells; the functions here only say what is to be written and told.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.server.controller.state import ControllerState
from kctl.zookeeper.znodes import TopicAssignment


def target_replicas(assignment: TopicAssignment, partition: int) -> tuple[int, ...]:
    """Who replicates when the reassignment is through."""
    removing = assignment.removing_replicas.get(partition, ())
    return tuple(r for r in assignment.replicas[partition] if r not in removing)


def origin_replicas(assignment: TopicAssignment, partition: int) -> tuple[int, ...]:
    """Who replicated before it began."""
    adding = assignment.adding_replicas.get(partition, ())
    return tuple(r for r in assignment.replicas[partition] if r not in adding)


def is_reassigning(assignment: TopicAssignment, partition: int) -> bool:
    return bool(assignment.adding_replicas.get(partition) or assignment.removing_replicas.get(partition))


def reassigning(state: ControllerState) -> Iterable[TopicPartition]:
    """All partitions under reassignment."""
    for topic_partition in state.all_partitions():
        if is_reassigning(state.topics[topic_partition.topic], topic_partition.partition):
            yield topic_partition


def refusal(state: ControllerState, topic_partition: TopicPartition, wanted: Sequence[int] | None) -> ApiError | None:
    """Why the partition cannot be reassigned so, or None; `wanted` None asks to cancel."""
    topic, partition = topic_partition
    assignment = state.topics.get(topic)
    if assignment is None or partition not in assignment.replicas:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic_partition}.")
    if topic in state.deleting:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic} is being deleted.")
    if wanted is None and not is_reassigning(assignment, partition):
        return ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    problem = None if wanted is None else _problem(state, assignment.replicas[partition], wanted)
    problem = problem or _loss(state, topic_partition, begun(assignment, partition, wanted))
    return None if problem is None else ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _problem(state: ControllerState, replicas: Sequence[int], wanted: Sequence[int]) -> str | None:
    listed = ", ".join(map(str, wanted))
    if not wanted:
        return "The list of replicas is empty."
    if len(set(wanted)) < len(wanted):
        return f"A broker is in the replicas twice: {listed}."
    if min(wanted) < 0:
        return f"Not all replicas are broker ids: {listed}."
    dead = sorted(set(wanted) - set(replicas) - state.brokers.keys())
    if dead:
        live = ", ".join(map(str, sorted(state.brokers)))
        return f"Not alive among the replicas to add: {', '.join(map(str, dead))}; alive are {live}."
    return None


def _loss(state: ControllerState, topic_partition: TopicPartition, books: TopicAssignment) -> str | None:
    """What an earlier wish added may be all that is in sync by now.  Apache Kafka refuses that since KRaft."""
    known = state.leaders.get(topic_partition)
    replicas = books.replicas[topic_partition.partition]
    if known is None or any(broker_id in replicas for broker_id in known.isr):
        return None
    return f"Only {', '.join(map(str, known.isr))} is in sync, and would not be a replica any more."


def begun(assignment: TopicAssignment, partition: int, wanted: Sequence[int] | None) -> TopicAssignment:
    """The books with the reassignment in them."""
    origin = origin_replicas(assignment, partition)
    target = tuple(wanted) if wanted is not None else origin
    union = target + tuple(r for r in origin if r not in target)
    return _with(
        assignment,
        partition,
        replicas=union,
        adding=tuple(r for r in target if r not in origin),
        removing=tuple(r for r in origin if r not in target),
    )


def completed(assignment: TopicAssignment, partition: int) -> TopicAssignment:
    """The books after it."""
    return _with(assignment, partition, replicas=target_replicas(assignment, partition), adding=(), removing=())


def is_complete(assignment: TopicAssignment, partition: int, isr: Collection[int]) -> bool:
    """Whether all target replicas are in sync."""
    return set(target_replicas(assignment, partition)) <= set(isr)


def _with(
    assignment: TopicAssignment,
    partition: int,
    *,
    replicas: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
) -> TopicAssignment:
    return replace(
        assignment,
        replicas={**assignment.replicas, partition: replicas},
        adding_replicas=_without_empty(assignment.adding_replicas, partition, adding),
        removing_replicas=_without_empty(assignment.removing_replicas, partition, removing),
    )


def _without_empty(
    known: Mapping[int, tuple[int, ...]], partition: int, value: tuple[int, ...]
) -> Mapping[int, tuple[int, ...]]:
    return {p: replicas for p, replicas in {**known, partition: value}.items() if replicas}
