"""Topics that are created, extended, or to be deleted, and in-sync replicas that leaders alter (KIP-497)."""

from __future__ import annotations

from dataclasses import replace

from kctl.errors import ErrorCode
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.server.cluster.controller.actions import (
    Action,
    AlterStates,
    CompleteRequest,
    EndDeletionWaits,
    RejectTopicDeletion,
)
from kctl.server.cluster.controller.events import (
    DeletionsRead,
    IsrAlterationsRequested,
    StatesAltered,
    StatesRead,
    TopicsRead,
    UncleanTopicsRead,
)
from kctl.server.cluster.controller.rules.decisions import Decision, is_slice_full
from kctl.server.cluster.controller.rules.leadership import bring_online
from kctl.server.cluster.controller.rules.reassignments import reassignments_lost, states_read
from kctl.server.cluster.controller.rules.topic_deletion import resume_deletions
from kctl.server.cluster.controller.state import ControllerState, PartitionPhase, ReplicaPhase

# Topics that are created, extended, or to be deleted.
#
# Pure.


def topics_changed(state: ControllerState, event: TopicsRead) -> Decision:
    """Handle topics that were created, extended, or deleted without the controller.

    The cost is that of these topics, however many exist.
    """
    removed = event.removed & state.topics.keys()
    actions: list[Action] = []
    for topic in sorted(removed):
        actions += yield from _forget(state, topic)
    state.unclean_topics -= event.changed.keys()
    state.unclean_topics |= event.unclean_topics
    added: list[TopicPartition] = []
    for topic, assignment in sorted(event.changed.items()):
        known = state.topics.get(topic)
        if topic in state.deleting or known is assignment:
            continue
        state.topics[topic] = assignment
        added += [
            TopicPartition(topic, partition)
            for partition in sorted(assignment.replicas)
            if known is None or partition not in known.replicas
        ]
    for number, topic_partition in enumerate(added):
        if is_slice_full(number):
            yield
        state.move(topic_partition, PartitionPhase.NEW)
        for broker_id in state.replicas(topic_partition):
            state.move_replica((topic_partition, broker_id), ReplicaPhase.NEW)
    elected = yield from bring_online(state, added)
    return [*actions, *reassignments_lost(state, removed), *elected]


def _forget(state: ControllerState, topic: str) -> Decision:
    """Remove a topic that was deleted without the controller.

    Its assignment is gone, so no broker can be sent a StopReplica.
    """
    for number, topic_partition in enumerate(state.partitions_of(topic)):
        if is_slice_full(number):
            yield
        for broker_id in state.replicas(topic_partition):
            state.replica_phases.pop((topic_partition, broker_id), None)
        state.leaders.pop(topic_partition, None)
        state.partition_phases.pop(topic_partition, None)
    del state.topics[topic]
    state.unclean_topics.discard(topic)
    if topic not in state.deleting:
        return []
    state.deleting.discard(topic)
    state.deletions_started.discard(topic)
    return [RejectTopicDeletion(topic), EndDeletionWaits((topic,))]


def unclean_topics_changed(state: ControllerState, event: UncleanTopicsRead) -> Decision:
    """Handle topics that allow or no longer allow unclean elections, which leaderless partitions have waited for."""
    newly_enabled = (event.enabled & state.topics.keys()) - state.unclean_topics
    state.unclean_topics -= event.disabled
    state.unclean_topics |= newly_enabled
    return (yield from bring_online(state, [tp for t in sorted(newly_enabled) for tp in state.partitions_of(t)]))


def deletions_requested(state: ControllerState, event: DeletionsRead) -> Decision:
    """Handle requests in /admin/delete_topics."""
    actions: list[Action] = []
    for topic in sorted(event.topics):
        if topic not in state.topics or not state.allows_topic_deletion:
            actions.append(RejectTopicDeletion(topic))
        else:
            state.deleting.add(topic)
    return actions + (yield from resume_deletions(state))


# AlterIsr: since 2.7-IV2, leaders change in-sync replicas through the controller. KIP-497.
#
# The controller has every state that it wrote itself, so it refuses a change based on an older state. It sends what
# it has written to all brokers as metadata; the leader gets it in the response. A leader that requests the current
# state again, because a response was lost, gets success. Kafka: KafkaController.alterIsrs.
#
# Pure.


def alterations_requested(state: ControllerState, event: IsrAlterationsRequested) -> list[Action]:
    """Write the valid changes; CompleteRequest follows when they are written."""
    outcome: dict[TopicPartition, ErrorCode] = {}
    accepted: dict[TopicPartition, LeaderAndIsr] = {}
    for topic_partition, requested in event.requested.items():
        outcome[topic_partition] = code = _judge(state, topic_partition, requested)
        if code is ErrorCode.NONE and not _is_same(state.leaders[topic_partition], requested):
            accepted[topic_partition] = replace(requested, controller_epoch=state.epoch)
    return [AlterStates(accepted, outcome, event.token)]


def states_altered(state: ControllerState, event: StatesAltered) -> Decision:
    """Update all brokers after in-sync replicas were written, and complete reassignments that are now in sync."""
    updates = yield from states_read(state, StatesRead({**event.written, **event.conflicts}))
    outcome = dict(event.outcome)
    outcome.update(dict.fromkeys(event.conflicts, ErrorCode.INVALID_UPDATE_VERSION))
    outcome.update(dict.fromkeys(event.missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return [CompleteRequest(event.token, outcome), *updates]


def _judge(state: ControllerState, topic_partition: TopicPartition, requested: LeaderAndIsr) -> ErrorCode:
    known = state.leaders.get(topic_partition)
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if requested.leader_epoch < known.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    is_leader = requested.leader == known.leader and requested.leader_epoch == known.leader_epoch
    if not is_leader or requested.leader not in requested.isr:
        return ErrorCode.INVALID_REQUEST
    # The leader may have a newer state, which it wrote itself before it was upgraded to AlterIsr.
    is_old = requested.partition_epoch < known.partition_epoch
    return ErrorCode.INVALID_UPDATE_VERSION if is_old and not _is_same(known, requested) else ErrorCode.NONE


def _is_same(known: LeaderAndIsr, requested: LeaderAndIsr) -> bool:
    return (known.leader, known.leader_epoch, known.isr) == (requested.leader, requested.leader_epoch, requested.isr)
