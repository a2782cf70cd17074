"""The steps of a reassignment, from the request to the deletion of removed replicas; rules: `reassignment_rules`.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping

from kctl.errors import ErrorCode
from kctl.model import NO_LEADER, LeaderAndIsr, TopicPartition
from kctl.server.controller import elections, reassignment_rules
from kctl.server.controller.actions import (
    Action,
    CompleteRequest,
    Continue,
    FinishRequestedReassignments,
    WatchStates,
    WriteAssignments,
    WriteStates,
)
from kctl.server.controller.decisions import Decision, is_long, is_slice_full
from kctl.server.controller.events import (
    ReassignmentsCompleted,
    ReassignmentsRequested,
    ReassignmentsStarted,
    ReplicasDismissed,
    StatesRead,
)
from kctl.server.controller.leadership import among_replicas, next_state
from kctl.server.controller.reassignment_rules import PartitionChange, is_reassigning
from kctl.server.controller.replica_states import ReplicaPhase
from kctl.server.controller.requests import RequestBatch
from kctl.server.controller.state import ControllerState
from kctl.server.controller.topic_deletion import resume_deletions
from kctl.zookeeper.znodes import TopicAssignment

_REMOVAL = (
    ReplicaPhase.OFFLINE,
    ReplicaPhase.DELETION_STARTED,
    ReplicaPhase.DELETION_SUCCESSFUL,
    ReplicaPhase.NON_EXISTENT,
)
"""States of a replica that a reassignment removes; Kafka's stopRemovedReplicasOfReassignedPartition."""


def reassignments_requested(state: ControllerState, event: ReassignmentsRequested) -> Decision:
    """Handles each partition on its own: refuses it, or writes it into the assignment of its topic."""
    outcome: dict[TopicPartition, ErrorCode] = {}
    changes: dict[str, dict[int, PartitionChange]] = {}
    begun: list[TopicPartition] = []
    for number, (topic_partition, requested) in enumerate(event.replicas.items()):
        if is_slice_full(number):
            yield
        refusal = reassignment_rules.refusal(state, topic_partition, requested)
        outcome[topic_partition] = refusal.code if refusal else ErrorCode.NONE
        if refusal is not None:
            continue
        topic, partition = topic_partition
        change = reassignment_rules.begun(state.topics[topic], partition, requested)
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
    """The assignments are written: starts added replicas, and removes obsolete ones of an earlier reassignment."""
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
    settled = [
        tp for tp in event.partitions if not reassignment_rules.is_reassigning(state.topics[tp.topic], tp.partition)
    ]
    if not state.requested_reassignments.isdisjoint(settled):
        actions.append(_finish_requested(state, settled))
    return [*actions, WatchStates(event.partitions)]


def replicas_dismissed(state: ControllerState, event: ReplicasDismissed) -> Decision:
    """Elects a new leader where an obsolete replica led, and deletes the obsolete replicas' logs."""
    batch = RequestBatch(state)
    for number, (topic_partition, broker_ids) in enumerate(event.dismissed.items()):
        if is_slice_full(number):
            yield
        for broker_id in broker_ids:
            _start_deletion(state, topic_partition, broker_id, batch)
    return batch.actions()


def resume_reassignments(state: ControllerState) -> Decision:
    """Continues pending reassignments, after a failover or when a broker is added."""
    under_way = tuple(reassignment_rules.reassigning(state))
    if not under_way:
        return []
    return [*(yield from _push(state, under_way)), WatchStates(under_way)]


def states_read(state: ControllerState, event: StatesRead) -> Decision:
    """Leaders changed their in-sync replicas: updates all brokers and completes reassignments that are now in sync."""
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
    """The target replicas are the only ones: deletes the removed replicas' logs and the request."""
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
    """The topics were deleted without the controller: drops their pending reassignments."""
    lost = [tp for tp in state.requested_reassignments if tp.topic in topics]
    return [_finish_requested(state, lost)] if lost else []


def _finish_requested(state: ControllerState, finished: Iterable[TopicPartition]) -> FinishRequestedReassignments:
    """Removes finished partitions from /admin/reassign_partitions, and the refused ones with them."""
    state.requested_reassignments.difference_update(finished)
    return FinishRequestedReassignments(tuple(sorted(state.requested_reassignments)))


def _push(state: ControllerState, partitions: tuple[TopicPartition, ...]) -> Decision:
    """Completes the partitions that are in sync; increments the leader epoch of the rest, so that all replicas are
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
    return reassignment_rules.is_complete(assignment, topic_partition.partition, state.leaders[topic_partition].isr)


def _complete(state: ControllerState, partitions: Iterable[TopicPartition]) -> Decision:
    """Leaves only the target replicas and elects one of them; sent to brokers before anything is deleted."""
    changes: dict[str, dict[int, PartitionChange]] = {}
    changed: dict[TopicPartition, LeaderAndIsr] = {}
    removed: dict[TopicPartition, tuple[int, ...]] = {}
    for number, topic_partition in enumerate(partitions):
        if is_slice_full(number):
            yield
        topic, partition = topic_partition
        known = state.leaders[topic_partition]
        target = reassignment_rules.target_replicas(state.topics[topic], partition)
        live = state.live_for(topic_partition)
        isr = tuple(r for r in known.isr if r in target)
        leader = known.leader
        if leader not in target or leader not in live:
            elected = elections.reassign(target, isr, live)
            if elected is None:
                continue  # No target replica can lead: retried when a broker is added.
            leader = elected.leader
        removed[topic_partition] = state.topics[topic].removing_replicas.get(partition, ())
        changes.setdefault(topic, {})[partition] = reassignment_rules.completed(state.topics[topic], partition)
        changed[topic_partition] = next_state(state, known, leader, isr)
    if not changed:
        return []
    state.topics.update((yield from _changed(state, changes)))
    return [WriteStates({}, changed), Continue(ReassignmentsCompleted(removed))]


def _changed(
    state: ControllerState, changes: Mapping[str, Mapping[int, PartitionChange]]
) -> Generator[None, None, dict[str, TopicAssignment]]:
    """The assignments of these topics with the changes; yields before large ones."""
    topics: dict[str, TopicAssignment] = {}
    for topic, of_partitions in changes.items():
        if is_long(state.topics[topic].replicas):
            yield
        topics[topic] = reassignment_rules.changed(state.topics[topic], of_partitions)
    return topics


def _start_replica(state: ControllerState, topic_partition: TopicPartition, broker_id: int) -> None:
    if state.replica_phase((topic_partition, broker_id)) is ReplicaPhase.NON_EXISTENT:
        state.move_replica((topic_partition, broker_id), ReplicaPhase.NEW)


def _start_deletion(
    state: ControllerState, topic_partition: TopicPartition, broker_id: int, batch: RequestBatch
) -> None:
    """Removes the replica without waiting for the response, since the next reassignment may add it again before that.

    A request that adds it again is sent after the deletion.  A broker that is not alive gets no request; it deletes
    stray replicas on the first full LeaderAndIsr after its restart.
    """
    replica = (topic_partition, broker_id)
    if state.replica_phase(replica) is ReplicaPhase.NON_EXISTENT:
        return
    batch.stop_replica(broker_id, topic_partition, is_deleting=True)
    for phase in _REMOVAL:
        state.move_replica(replica, phase)
