"""Topic deletion: brokers drop its metadata, replicas stop, replicas delete their logs, its znodes are deleted.

A deletion waits while one of the replicas is on a dead broker or the topic is being reassigned; it is retried when a
broker is added, when a deletion is requested and when a replica responds.  Kafka: TopicDeletionManager.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.server.cluster.controller.actions import Action, DeleteTopicNodes, EndDeletionWaits
from kctl.server.cluster.controller.rules.decisions import Decision, RequestBatch, is_long, is_slice_full
from kctl.server.cluster.controller.state import ControllerState, PartitionPhase, Replica, ReplicaPhase


def resume_deletions(state: ControllerState) -> Decision:
    """Start all deletions that can start."""
    batch = RequestBatch(state)
    numbers = count()
    for topic in sorted(state.deleting):
        if is_slice_full(next(numbers)):
            yield
        replicas = _replicas(state, topic)
        if is_long(replicas):
            yield
        if not _may_start(state, topic, replicas):
            continue
        if is_long(replicas):
            yield
        if topic not in state.deletions_started:
            state.deletions_started.add(topic)
            for topic_partition in state.partitions_of(topic):
                if is_slice_full(next(numbers)):
                    yield
                _take_offline(state, topic_partition, batch)
        for replica in replicas:
            if is_slice_full(next(numbers)):
                yield
            _start_replica(state, replica, batch)
    return batch.actions()


def deletion_responded(state: ControllerState, broker_id: int, errors: Mapping[TopicPartition, ErrorCode]) -> Decision:
    """Handle a broker's response to the deletion of its replicas."""
    topics: set[str] = set()
    numbers = count()
    for topic_partition, code in errors.items():
        if is_slice_full(next(numbers)):
            yield
        replica = (topic_partition, broker_id)
        if state.replica_phase(replica) is not ReplicaPhase.DELETION_STARTED:
            continue
        is_done = code is ErrorCode.NONE
        state.move_replica(replica, ReplicaPhase.DELETION_SUCCESSFUL if is_done else ReplicaPhase.DELETION_INELIGIBLE)
        if topic_partition.topic in state.deleting:
            topics.add(topic_partition.topic)
    actions: list[Action] = []
    for topic in sorted(topics):
        if is_slice_full(next(numbers)):
            yield
        replicas = _replicas(state, topic)
        if is_long(replicas):
            yield
        if not all(state.replica_phase(replica) is ReplicaPhase.DELETION_SUCCESSFUL for replica in replicas):
            continue
        for replica in replicas:
            if is_slice_full(next(numbers)):
                yield
            state.move_replica(replica, ReplicaPhase.NON_EXISTENT)
        actions.append(DeleteTopicNodes(topic))
    return actions


def fail_deletion(state: ControllerState, replica: Replica) -> None:
    """Handle that the broker of the replica is gone: the request to delete it is sent again when it is back."""
    if state.replica_phase(replica) is ReplicaPhase.DELETION_STARTED:
        state.move_replica(replica, ReplicaPhase.DELETION_INELIGIBLE)


def nodes_deleted(state: ControllerState, topic: str) -> Decision:
    """Forget a topic that does not exist anymore.  Until then it is being deleted, and cannot be created again."""
    for number, topic_partition in enumerate(state.partitions_of(topic)):
        if is_slice_full(number):
            yield
        state.leaders.pop(topic_partition, None)
    del state.topics[topic]
    state.deleting.discard(topic)
    state.deletions_started.discard(topic)
    state.unclean_topics.discard(topic)
    return [EndDeletionWaits((topic,))]


def deletion_obstacle(state: ControllerState, topic: str) -> str | None:
    """Return what the deletion of the topic waits for, as the end of a sentence; None if it goes on or is not known
    yet.
    """
    if topic not in state.deleting:
        return None
    if _is_moving(state, topic):
        return "the end of its reassignment"
    missing = {
        broker_id
        for replica in _replicas(state, topic)
        if (broker_id := replica[1]) not in state.brokers
        or state.replica_phase(replica) is ReplicaPhase.DELETION_INELIGIBLE
    }
    return f"replicas on brokers that are not available: {', '.join(map(str, sorted(missing)))}" if missing else None


def _replicas(state: ControllerState, topic: str) -> list[Replica]:
    return [(tp, broker_id) for tp in state.partitions_of(topic) for broker_id in state.replicas(tp)]


def _may_start(state: ControllerState, topic: str, replicas: list[Replica]) -> bool:
    return not _is_moving(state, topic) and all(broker_id in state.brokers for _, broker_id in replicas)


def _is_moving(state: ControllerState, topic: str) -> bool:
    assignment = state.topics[topic]
    return any(assignment.adding_replicas.values()) or any(assignment.removing_replicas.values())


def _take_offline(state: ControllerState, topic_partition: TopicPartition, batch: RequestBatch) -> None:
    if state.phase(topic_partition) is not PartitionPhase.NON_EXISTENT:
        state.move(topic_partition, PartitionPhase.OFFLINE)
        state.move(topic_partition, PartitionPhase.NON_EXISTENT)
    batch.metadata_of_deleted(topic_partition)


def _start_replica(state: ControllerState, replica: Replica, batch: RequestBatch) -> None:
    topic_partition, broker_id = replica
    phase = state.replica_phase(replica)
    if phase in {ReplicaPhase.DELETION_STARTED, ReplicaPhase.DELETION_SUCCESSFUL}:
        return
    state.move_replica(replica, ReplicaPhase.OFFLINE)
    batch.stop_replica(broker_id, topic_partition, is_deleting=False)
    state.move_replica(replica, ReplicaPhase.DELETION_STARTED)
    batch.stop_replica(broker_id, topic_partition, is_deleting=True)
