"""The rules and the steps of reassignments (KIP-455)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kctl.errors import ApiError, ErrorCode
from kctl.model import NO_LEADER, LeaderAndIsr, TopicPartition
from kctl.server.cluster.controller.actions import (
    Action,
    CompleteRequest,
    Continue,
    FinishRequestedReassignments,
    WatchStates,
    WriteAssignments,
    WriteStates,
)
from kctl.server.cluster.controller.events import (
    ReassignmentsCompleted,
    ReassignmentsRequested,
    ReassignmentsStarted,
    ReplicasDismissed,
    StatesRead,
)
from kctl.server.cluster.controller.rules import leadership
from kctl.server.cluster.controller.rules.decisions import Decision, RequestBatch, is_long, is_slice_full
from kctl.server.cluster.controller.rules.leadership import among_replicas, next_state
from kctl.server.cluster.controller.rules.topic_deletion import resume_deletions
from kctl.server.cluster.controller.state import ControllerState, ReplicaPhase
from kctl.system.steps import Steps
from kctl.zookeeper.znodes import TopicAssignment

# Rules of reassignments: a partition's replicas change while it is written and read. KIP-455.
#
# The topic's node holds the whole state, so that another controller can continue:
#   replicas   all current replicas, target replicas first
#   adding     replicas that the reassignment adds
#   removing   replicas that the reassignment removes
# target = replicas - removing; origin = replicas - adding.
#
# Begin: write the union, start the new replicas as followers. Complete, once all target replicas are in sync: write
# only these as replicas, elect one of them, delete the removed replicas' logs. Cancel: reassign to the origin. Each
# step is written to ZooKeeper before requests are sent to brokers; the functions here only compute what to write and
# send.
#
# Pure.


class PartitionChange(NamedTuple):
    """What the node of a topic has about a partition after a step of its reassignment."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def target_replicas(assignment: TopicAssignment, partition: int) -> tuple[int, ...]:
    """Return the replicas after the reassignment."""
    removing = assignment.removing_replicas.get(partition, ())
    return tuple(replica for replica in assignment.replicas[partition] if replica not in removing)


def origin_replicas(assignment: TopicAssignment, partition: int) -> tuple[int, ...]:
    """Return the replicas before the reassignment."""
    adding = assignment.adding_replicas.get(partition, ())
    return tuple(replica for replica in assignment.replicas[partition] if replica not in adding)


def is_reassigning(assignment: TopicAssignment, partition: int) -> bool:
    """Return whether replicas are being added or removed."""
    return bool(assignment.adding_replicas.get(partition) or assignment.removing_replicas.get(partition))


def reassigning(state: ControllerState, topics: Iterable[str] | None = None) -> Iterable[TopicPartition]:
    """Yield the partitions of these or all topics that are under reassignment."""
    named = state.topics if topics is None else state.topics.keys() & topics
    moving = [
        candidate
        for candidate in named
        if state.topics[candidate].adding_replicas or state.topics[candidate].removing_replicas
    ]
    for topic in sorted(moving):
        assignment = state.topics[topic]
        moved = assignment.adding_replicas.keys() | assignment.removing_replicas.keys()
        for partition in sorted(moved):
            if is_reassigning(assignment, partition) and partition in assignment.replicas:
                yield TopicPartition(topic, partition)


def reason_to_refuse(
    state: ControllerState, topic_partition: TopicPartition, requested: Sequence[int] | None
) -> ApiError | None:
    """Return why the partition cannot be reassigned to `requested`, or None; `requested` None cancels.

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
    problem = _loss(state, topic_partition, begin(assignment, partition, requested).replicas)
    return None if problem is None else ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def changed_replication_factor(
    state: ControllerState, topic_partition: TopicPartition, requested: Sequence[int] | None
) -> ApiError | None:
    """Return the error if the number of replicas, after a reassignment in progress, would be another one (KIP-860)."""
    topic, partition = topic_partition
    assignment = state.topics.get(topic)
    if assignment is None or requested is None:
        return None
    removing = assignment.removing_replicas.get(partition, ())
    present = len({*assignment.replicas.get(partition, ())} - {*removing})
    if present == len(requested):
        return None
    return ApiError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"The replication factor is changed from {present} to {len(requested)}",
    )


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
    """Return the problem if only replicas of an earlier reassignment are in sync.

    Apache Kafka refuses that since KRaft.
    """
    known = state.leaders.get(topic_partition)
    if known is None or any(broker_id in replicas for broker_id in known.isr):
        return None
    return f"Only {', '.join(map(str, known.isr))} is in sync, and would no longer be a replica."


def begin(assignment: TopicAssignment, partition: int, requested: Sequence[int] | None) -> PartitionChange:
    """Return the change that starts the reassignment."""
    origin = origin_replicas(assignment, partition)
    target = tuple(requested) if requested is not None else origin
    union = target + tuple(replica for replica in origin if replica not in target)
    return PartitionChange(
        replicas=union,
        adding=tuple(replica for replica in target if replica not in origin),
        removing=tuple(replica for replica in origin if replica not in target),
    )


def completed(assignment: TopicAssignment, partition: int) -> PartitionChange:
    """Return the change that completes the reassignment."""
    return PartitionChange(replicas=target_replicas(assignment, partition), adding=(), removing=())


def is_complete(assignment: TopicAssignment, partition: int, isr: Collection[int]) -> bool:
    """Return whether all target replicas are in sync."""
    return set(target_replicas(assignment, partition)) <= set(isr)


def changed(assignment: TopicAssignment, changes: Mapping[int, PartitionChange]) -> TopicAssignment:
    """Return the assignment with changes of some of its partitions."""
    return replace(
        assignment,
        replicas={**assignment.replicas, **{partition: change.replicas for partition, change in changes.items()}},
        adding_replicas=_without_empty(
            assignment.adding_replicas, {index: change.adding for index, change in changes.items()}
        ),
        removing_replicas=_without_empty(
            assignment.removing_replicas, {index: change.removing for index, change in changes.items()}
        ),
    )


def _without_empty(
    known: Mapping[int, tuple[int, ...]], changes: Mapping[int, tuple[int, ...]]
) -> Mapping[int, tuple[int, ...]]:
    return {index: replicas for index, replicas in {**known, **changes}.items() if replicas}


# The steps of a reassignment, from the request to the deletion of removed replicas; rules: `reassignment_rules`.
#
# Pure.


_REMOVAL = (
    ReplicaPhase.OFFLINE,
    ReplicaPhase.DELETION_STARTED,
    ReplicaPhase.DELETION_SUCCESSFUL,
    ReplicaPhase.NON_EXISTENT,
)
"""States of a replica that a reassignment removes; Kafka's stopRemovedReplicasOfReassignedPartition."""


def reassignments_requested(state: ControllerState, event: ReassignmentsRequested) -> Decision:
    """Process each partition on its own: refuse it, or write it into the assignment of its topic."""
    outcome: dict[TopicPartition, ErrorCode] = {}
    changes: dict[str, dict[int, PartitionChange]] = {}
    begun: list[TopicPartition] = []
    for number, (topic_partition, requested) in enumerate(event.replicas.items()):
        if is_slice_full(number):
            yield
        refusal = reason_to_refuse(state, topic_partition, requested)
        outcome[topic_partition] = refusal.code if refusal else ErrorCode.NONE
        if refusal is not None:
            continue
        topic, partition = topic_partition
        change = begin(state.topics[topic], partition, requested)
        changes.setdefault(topic, {})[partition] = change
        begun.append(topic_partition)
    topics = yield from _changed(state, changes)
    if event.from_znode:
        state.requested_reassignments.update(begun)
    actions: list[Action] = []
    if begun:
        actions = [WriteAssignments(topics), Continue(ReassignmentsStarted(topics, tuple(begun)))]
    if event.from_znode and (len(begun) < len(event.replicas) or not begun):
        actions.append(_finish_requested(state, ()))
    return [*actions, CompleteRequest(event.token, outcome)]


def reassignments_started(state: ControllerState, event: ReassignmentsStarted) -> Decision:
    """Start added replicas of written assignments, and remove obsolete ones of an earlier reassignment."""
    before = {topic_partition: state.replicas(topic_partition) for topic_partition in event.partitions}
    state.topics.update(event.topics)
    dismissed: dict[TopicPartition, tuple[int, ...]] = {}
    for number, (topic_partition, known) in enumerate(before.items()):
        if is_slice_full(number):
            yield
        requested = state.replicas(topic_partition)
        unwanted = tuple(broker_id for broker_id in known if broker_id not in requested)
        if unwanted:
            dismissed[topic_partition] = unwanted
        for broker_id in requested:
            if broker_id not in known:
                _start_replica(state, topic_partition, broker_id)
    actions = yield from _push(state, event.partitions)
    if dismissed:
        actions.append(Continue(ReplicasDismissed(dismissed)))
    # Same replicas, other order, or a cancellation: no replica has to catch up.
    settled = [tp for tp in event.partitions if not is_reassigning(state.topics[tp.topic], tp.partition)]
    if not state.requested_reassignments.isdisjoint(settled):
        actions.append(_finish_requested(state, settled))
    return [*actions, WatchStates(event.partitions)]


def replicas_dismissed(state: ControllerState, event: ReplicasDismissed) -> Decision:
    """Elect a new leader where an obsolete replica led, and delete the obsolete replicas' logs."""
    batch = RequestBatch(state)
    for number, (topic_partition, broker_ids) in enumerate(event.dismissed.items()):
        if is_slice_full(number):
            yield
        for broker_id in broker_ids:
            _start_deletion(state, topic_partition, broker_id, batch)
    return batch.actions()


def resume_reassignments(state: ControllerState) -> Decision:
    """Continue pending reassignments, after a failover or when a broker is added."""
    under_way = tuple(reassigning(state))
    if not under_way:
        return []
    return [*(yield from _push(state, under_way)), WatchStates(under_way)]


def states_read(state: ControllerState, event: StatesRead) -> Decision:
    """Update all brokers after leaders changed their in-sync replicas, and complete reassignments that are now in
    sync.
    """
    batch = RequestBatch(state)
    changed: list[TopicPartition] = []
    for number, (topic_partition, current) in enumerate(event.states.items()):
        if is_slice_full(number):
            yield
        known = state.leaders.get(topic_partition)
        if known is None or current.partition_epoch <= known.partition_epoch:
            continue
        state.leaders[topic_partition] = current
        batch.metadata(topic_partition)
        changed.append(topic_partition)
    complete = [tp for tp in changed if _is_complete(state, tp)]
    return [*batch.actions(), *(yield from _complete(state, complete))]


def reassignments_completed(state: ControllerState, event: ReassignmentsCompleted) -> Decision:
    """Delete the logs of replicas that a completed reassignment removed, and its request."""
    batch = RequestBatch(state)
    topics: dict[str, TopicAssignment] = {}
    for number, (topic_partition, removed) in enumerate(event.removed.items()):
        if is_slice_full(number):
            yield
        topics[topic_partition.topic] = state.topics[topic_partition.topic]
        for broker_id in removed:
            _start_deletion(state, topic_partition, broker_id, batch)
        batch.metadata(topic_partition)
    actions: list[Action] = [*batch.actions(), WriteAssignments(topics)]
    if not state.requested_reassignments.isdisjoint(event.removed):
        actions.append(_finish_requested(state, event.removed))
    return [*actions, *(yield from resume_deletions(state))]


def reassignments_lost(state: ControllerState, topics: Collection[str]) -> list[Action]:
    """Drop the pending reassignments of topics that were deleted without the controller."""
    lost = [tp for tp in state.requested_reassignments if tp.topic in topics]
    return [_finish_requested(state, lost)] if lost else []


def _finish_requested(state: ControllerState, finished: Iterable[TopicPartition]) -> FinishRequestedReassignments:
    """Remove finished partitions from /admin/reassign_partitions, and the refused ones with them."""
    state.requested_reassignments.difference_update(finished)
    return FinishRequestedReassignments(tuple(sorted(state.requested_reassignments)))


def _push(state: ControllerState, partitions: tuple[TopicPartition, ...]) -> Decision:
    """Complete the partitions that are in sync; increment the leader epoch of the rest, so that all replicas are
    updated.
    """
    complete: list[TopicPartition] = []
    pushed: dict[TopicPartition, LeaderAndIsr] = {}
    for number, topic_partition in enumerate(dict.fromkeys(partitions)):
        if is_slice_full(number):
            yield
        known = state.leaders.get(topic_partition)
        if known is None:
            continue
        if _is_complete(state, topic_partition):
            complete.append(topic_partition)
        elif known.leader != NO_LEADER:
            pushed[topic_partition] = among_replicas(state, topic_partition)
    actions: list[Action] = [WriteStates({}, pushed)] if pushed else []
    return [*actions, *(yield from _complete(state, complete))]


def _is_complete(state: ControllerState, topic_partition: TopicPartition) -> bool:
    assignment = state.topics.get(topic_partition.topic)
    if assignment is None or not is_reassigning(assignment, topic_partition.partition):
        return False
    return is_complete(assignment, topic_partition.partition, state.leaders[topic_partition].isr)


def _complete(state: ControllerState, partitions: Iterable[TopicPartition]) -> Decision:
    """Leave only the target replicas and elect one of them; sent to brokers before anything is deleted."""
    changes: dict[str, dict[int, PartitionChange]] = {}
    changed: dict[TopicPartition, LeaderAndIsr] = {}
    removed: dict[TopicPartition, tuple[int, ...]] = {}
    for number, topic_partition in enumerate(partitions):
        if is_slice_full(number):
            yield
        topic, partition = topic_partition
        known = state.leaders[topic_partition]
        target = target_replicas(state.topics[topic], partition)
        live = state.live_for(topic_partition)
        isr = tuple(replica for replica in known.isr if replica in target)
        leader = known.leader
        if leader not in target or leader not in live:
            elected = leadership.reassign(target, isr, live)
            if elected is None:
                continue  # No target replica can lead: retried when a broker is added.
            leader = elected.leader
        removed[topic_partition] = state.topics[topic].removing_replicas.get(partition, ())
        changes.setdefault(topic, {})[partition] = completed(state.topics[topic], partition)
        changed[topic_partition] = next_state(state, known, leader, isr)
    if not changed:
        return []
    state.topics.update((yield from _changed(state, changes)))
    return [WriteStates({}, changed), Continue(ReassignmentsCompleted(removed))]


def _changed(
    state: ControllerState, changes: Mapping[str, Mapping[int, PartitionChange]]
) -> Steps[dict[str, TopicAssignment]]:
    """Return the assignments of these topics with the changes; yield before large ones."""
    topics: dict[str, TopicAssignment] = {}
    for topic, of_partitions in changes.items():
        if is_long(state.topics[topic].replicas):
            yield
        topics[topic] = changed(state.topics[topic], of_partitions)
    return topics


def _start_replica(state: ControllerState, topic_partition: TopicPartition, broker_id: int) -> None:
    if state.replica_phase((topic_partition, broker_id)) is ReplicaPhase.NON_EXISTENT:
        state.move_replica((topic_partition, broker_id), ReplicaPhase.NEW)


def _start_deletion(
    state: ControllerState, topic_partition: TopicPartition, broker_id: int, batch: RequestBatch
) -> None:
    """Remove the replica without waiting for the response, since the next reassignment may add it again before that.

    A request that adds it again is sent after the deletion.  A broker that is not alive gets no request; it deletes
    stray replicas on the first full LeaderAndIsr after its restart.
    """
    replica = (topic_partition, broker_id)
    if state.replica_phase(replica) is ReplicaPhase.NON_EXISTENT:
        return
    batch.stop_replica(broker_id, topic_partition, is_deleting=True)
    for phase in _REMOVAL:
        state.move_replica(replica, phase)
