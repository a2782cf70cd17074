"""The controller's decisions: `step(state, event, now_ms) -> actions`, and the same in slices: `decide`.

The runner feeds one event at a time, performs the actions in order and feeds their results (StatesWritten, responses)
before the next external event.  So each decision is based on the results of the one before.

Order matters: a partition's state is written to ZooKeeper before it is sent to any broker; LeaderAndIsr is sent before
UpdateMetadata, and both before StopReplica, because clients must not be directed to a broker that is not leader yet.

Pure.
"""

from __future__ import annotations

from typing import assert_never

from kctl.model import TopicPartition
from kctl.server.cluster.controller.actions import Action, EndDeletionWaits, WriteStates
from kctl.server.cluster.controller.events import (
    BrokersRead,
    ControlledShutdownRequested,
    DeletionsRead,
    Elected,
    ElectionRequested,
    Event,
    IsrAlterationsRequested,
    LeaderAndIsrResponseReceived,
    LogDirFailed,
    ReassignmentsCompleted,
    ReassignmentsRequested,
    ReassignmentsStarted,
    RebalanceDue,
    ReplicasDismissed,
    Resigned,
    StatesAltered,
    StatesRead,
    StatesWritten,
    StopReplicaResponseReceived,
    TopicNodesDeleted,
    TopicsRead,
    UncleanTopicsRead,
)
from kctl.server.cluster.controller.rules.changes import (
    alterations_requested,
    deletions_requested,
    states_altered,
    topics_changed,
    unclean_topics_changed,
)
from kctl.server.cluster.controller.rules.decisions import Decision, RequestBatch, is_slice_full
from kctl.server.cluster.controller.rules.leadership import (
    bring_online,
    election_requested,
    rebalance,
    shut_down,
    states_written,
    without_dead_brokers,
    without_restarted_brokers,
)
from kctl.server.cluster.controller.rules.membership import brokers_changed, leader_and_isr_responded, log_dir_failed
from kctl.server.cluster.controller.rules.reassignments import (
    reassignments_completed,
    reassignments_requested,
    reassignments_started,
    replicas_dismissed,
    resume_reassignments,
    states_read,
)
from kctl.server.cluster.controller.rules.topic_deletion import deletion_responded, nodes_deleted
from kctl.server.cluster.controller.state import ControllerState, PartitionPhase, ReplicaPhase
from kctl.system.steps import run_at_once


def step(state: ControllerState, event: Event, now_ms: int) -> list[Action]:
    """Update `state` for the event and return the actions to perform, as `decide` in one slice."""
    return run_at_once(decide(state, event, now_ms))


def decide(state: ControllerState, event: Event, now_ms: int) -> Decision:
    """Update `state` for the event and return the actions to perform; yield between slices of a long decision.

    Events other than Elected are ignored while this broker is not the controller: they were queued before it resigned.
    """
    if not state.is_active and not isinstance(event, Elected):
        return []
    decision = _decision_of(state, event)
    return decision if isinstance(decision, list) else (yield from decision)


def _decision_of(state: ControllerState, event: Event) -> Decision | list[Action]:
    match event:
        case Resigned():
            # Requests stop waiting: this broker does not learn of the end of these deletions any more.
            waited_for = tuple(sorted(state.deleting))
            _forget(state)
            return [EndDeletionWaits(waited_for)] if waited_for else []
        case BrokersRead():
            return brokers_changed(state, event)
        case TopicsRead():
            return topics_changed(state, event)
        case UncleanTopicsRead():
            return unclean_topics_changed(state, event)
        case TopicNodesDeleted():
            return nodes_deleted(state, event.topic)
        case DeletionsRead():
            return deletions_requested(state, event)
        case StatesWritten():
            return states_written(state, event)
        case LeaderAndIsrResponseReceived():
            return leader_and_isr_responded(state, event.broker_id, event.errors)
        case StopReplicaResponseReceived():
            return deletion_responded(state, event.broker_id, event.errors)
        case ControlledShutdownRequested():
            return shut_down(state, event.broker_id)
        case ElectionRequested():
            return election_requested(state, event)
        case RebalanceDue():
            return rebalance(state, event)
        case ReassignmentsRequested():
            return reassignments_requested(state, event)
        case ReassignmentsStarted():
            return reassignments_started(state, event)
        case ReplicasDismissed():
            return replicas_dismissed(state, event)
        case ReassignmentsCompleted():
            return reassignments_completed(state, event)
        case StatesRead():
            return states_read(state, event)
        case IsrAlterationsRequested():
            return alterations_requested(state, event)
        case StatesAltered():
            return states_altered(state, event)
        case LogDirFailed():
            return log_dir_failed(state, event.broker_id)
        case Elected():
            return _fail_over(state, event)
        case _:
            assert_never(event)


def led_with_followers(state: ControllerState, broker_id: int) -> list[TopicPartition]:
    """Return the partitions with followers that the broker still leads: a controlled shutdown waits for these."""
    return [
        topic_partition
        for topic_partition, leader in state.leaders.items()
        if leader.leader == broker_id and len(state.replicas(topic_partition)) > 1
    ]


def _forget(state: ControllerState) -> None:
    state.is_active = False
    for part in (
        state.brokers,
        state.shutting_down,
        state.topics,
        state.unclean_topics,
        state.leaders,
        state.partition_phases,
        state.replica_phases,
        state.deleting,
        state.deletions_started,
        state.offline_replicas,
        state.requested_reassignments,
    ):
        part.clear()


def _fail_over(state: ControllerState, event: Elected) -> Decision:
    # A broker that is elected again starts from what is in ZooKeeper, which other controllers have changed.
    _forget(state)
    state.is_active = True
    state.epoch, state.epoch_version = event.epoch, event.epoch_version
    state.brokers.update(event.brokers)
    state.topics.update(event.topics)
    state.leaders.update(event.leaders)
    state.unclean_topics.update(event.unclean_topics)
    everything = list(state.all_partitions())
    for number, topic_partition in enumerate(everything):
        if is_slice_full(number):
            yield
        _start_partition(state, topic_partition)
    restarted = yield from without_restarted_brokers(state, event.returned)
    decided = {**without_dead_brokers(state, everything), **restarted}
    yield
    deletions = yield from deletions_requested(state, DeletionsRead(event.deletions))
    # A topic that is being deleted gets no new states.
    changes = {tp: requested for tp, requested in decided.items() if tp.topic not in state.deleting}
    elections = yield from bring_online(state, everything, changes)
    writes = [action for action in elections if isinstance(action, WriteStates)]
    # The roles of these are sent when their new states are in ZooKeeper.
    awaited = decided.keys() | {tp for write in writes for tp in (*write.created, *write.changed)}
    introduction = RequestBatch(state)
    introduction.send_live_brokers()
    roles = RequestBatch(state)
    for number, topic_partition in enumerate(everything):
        if is_slice_full(number):
            yield
        if topic_partition not in awaited:
            _send_roles(state, topic_partition, roles)
    reassignments = yield from resume_reassignments(state)
    # The brokers come first: followers find their leaders in the metadata.
    return [*introduction.actions(), *roles.actions(), *elections, *reassignments, *deletions]


def _start_partition(state: ControllerState, topic_partition: TopicPartition) -> None:
    leader = state.leaders.get(topic_partition)
    state.move(topic_partition, PartitionPhase.NEW)
    if leader is not None:
        is_online = leader.leader in state.brokers
        state.move(topic_partition, PartitionPhase.ONLINE if is_online else PartitionPhase.OFFLINE)
    for broker_id in state.replicas(topic_partition):
        is_alive = broker_id in state.brokers
        state.move_replica((topic_partition, broker_id), ReplicaPhase.NEW)
        state.move_replica((topic_partition, broker_id), ReplicaPhase.ONLINE if is_alive else ReplicaPhase.OFFLINE)


def _send_roles(state: ControllerState, topic_partition: TopicPartition, batch: RequestBatch) -> None:
    """Send the state in ZooKeeper; a new decision is sent when it is written, since the old leader may be dead."""
    if topic_partition in state.leaders:
        batch.leader_and_isr_of_all(
            topic_partition,
            [(broker_id, False) for broker_id in state.replicas(topic_partition) if broker_id in state.brokers],
        )
