"""Topics that are created, extended, or to be deleted.

Pure.
"""

from __future__ import annotations

from kctl.model import TopicPartition
from kctl.server.controller.actions import Action, RejectTopicDeletion
from kctl.server.controller.decisions import Decision, is_slice_full
from kctl.server.controller.events import DeletionsRead, TopicsRead
from kctl.server.controller.leadership import bring_online
from kctl.server.controller.partition_states import PartitionPhase
from kctl.server.controller.reassignment_steps import reassignments_lost
from kctl.server.controller.replica_states import ReplicaPhase
from kctl.server.controller.state import ControllerState
from kctl.server.controller.topic_deletion import resume_deletions


def topics_changed(state: ControllerState, event: TopicsRead) -> Decision:
    """Handles topics that were created, extended, deleted without the controller, or now allow unclean elections."""
    newly_unclean = event.unclean_topics - state.unclean_topics
    state.unclean_topics = set(event.unclean_topics)
    removed = state.topics.keys() - event.topics.keys() - event.unreadable
    for topic in removed:
        # Deleted without the controller: the assignment is gone, so no broker can be sent a StopReplica.
        for topic_partition in state.partitions_of(topic):
            state.leaders.pop(topic_partition, None)
            state.partition_phases.pop(topic_partition, None)
        del state.topics[topic]
    if removed:
        for replica in [replica for replica in state.replica_phases if replica[0].topic in removed]:
            del state.replica_phases[replica]
    added: list[TopicPartition] = []
    for topic, assignment in sorted(event.topics.items()):
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
    leaderless = [tp for topic in sorted(newly_unclean & state.topics.keys()) for tp in state.partitions_of(topic)]
    elected = yield from bring_online(state, [*added, *leaderless])
    return [*reassignments_lost(state, removed), *elected]


def deletions_requested(state: ControllerState, event: DeletionsRead) -> Decision:
    """Handles requests in /admin/delete_topics."""
    actions: list[Action] = []
    for topic in sorted(event.topics):
        if topic not in state.topics or not state.allows_topic_deletion:
            actions.append(RejectTopicDeletion(topic))
        else:
            state.deleting.add(topic)
    return actions + (yield from resume_deletions(state))
