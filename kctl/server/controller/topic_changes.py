"""Topics that are created, extended, or to be deleted.

Pure.
"""

from __future__ import annotations

from kctl.model import TopicPartition
from kctl.server.controller.actions import Action, EndDeletionWaits, RejectTopicDeletion
from kctl.server.controller.decisions import Decision, is_slice_full
from kctl.server.controller.events import DeletionsRead, TopicsRead, UncleanTopicsRead
from kctl.server.controller.leadership import bring_online
from kctl.server.controller.partition_states import PartitionPhase
from kctl.server.controller.reassignment_steps import reassignments_lost
from kctl.server.controller.replica_states import ReplicaPhase
from kctl.server.controller.state import ControllerState
from kctl.server.controller.topic_deletion import resume_deletions


def topics_changed(state: ControllerState, event: TopicsRead) -> Decision:
    """Handles topics that were created, extended, or deleted without the controller.

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
    """Removes a topic that was deleted without the controller.

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
    """Handles topics that allow or no longer allow unclean elections, which leaderless partitions have waited for."""
    newly_enabled = (event.enabled & state.topics.keys()) - state.unclean_topics
    state.unclean_topics -= event.disabled
    state.unclean_topics |= newly_enabled
    return (yield from bring_online(state, [tp for t in sorted(newly_enabled) for tp in state.partitions_of(t)]))


def deletions_requested(state: ControllerState, event: DeletionsRead) -> Decision:
    """Handles requests in /admin/delete_topics."""
    actions: list[Action] = []
    for topic in sorted(event.topics):
        if topic not in state.topics or not state.allows_topic_deletion:
            actions.append(RejectTopicDeletion(topic))
        else:
            state.deleting.add(topic)
    return actions + (yield from resume_deletions(state))
