"""Brokers that are added, removed or restarted, and failed log directories.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from kctl.errors import ErrorCode
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.server.cluster.controller.actions import Continue, WriteStates
from kctl.server.cluster.controller.events import BrokersRead
from kctl.server.cluster.controller.rules.decisions import Decision, RequestBatch, is_slice_full
from kctl.server.cluster.controller.rules.leadership import bring_online, without, without_dead_brokers
from kctl.server.cluster.controller.rules.reassignments import resume_reassignments
from kctl.server.cluster.controller.rules.topic_deletion import fail_deletion, resume_deletions
from kctl.server.cluster.controller.state import ControllerState, PartitionPhase, ReplicaPhase


def brokers_changed(state: ControllerState, event: BrokersRead) -> Decision:
    """Handle brokers that were removed, added, or restarted so fast that only their epoch changed."""
    bounced = {b for b, live in event.brokers.items() if b in state.brokers and state.brokers[b].epoch != live.epoch}
    gone = (state.brokers.keys() - event.brokers.keys()) | bounced
    come = event.brokers.keys() - (state.brokers.keys() - bounced)
    is_modified = any(event.brokers[b] != state.brokers[b] for b in event.brokers.keys() & state.brokers.keys())
    for broker_id in gone:
        del state.brokers[broker_id]
        state.shutting_down.discard(broker_id)
        state.offline_replicas = {replica for replica in state.offline_replicas if replica[1] != broker_id}
    if gone:
        # The states of partitions of removed brokers are written before added brokers are handled.
        actions = yield from _brokers_removed(state, gone)
        return [*actions, Continue(event)] if come or is_modified else actions
    state.brokers.update(event.brokers)
    if come:
        return (yield from _brokers_added(state, come))
    if is_modified:
        batch = RequestBatch(state)
        batch.send_live_brokers()
        return batch.actions()
    return []


def _brokers_removed(state: ControllerState, gone: set[int]) -> Decision:
    orphans: list[TopicPartition] = []
    diminished: list[TopicPartition] = []
    for number, topic_partition in enumerate(state.all_partitions()):
        if is_slice_full(number):
            yield
        lost = [b for b in state.replicas(topic_partition) if b in gone]
        if topic_partition.topic in state.deleting:
            for broker_id in lost:
                fail_deletion(state, (topic_partition, broker_id))
            continue
        for broker_id in lost:
            state.move_replica((topic_partition, broker_id), ReplicaPhase.OFFLINE)
        leader = state.leaders.get(topic_partition)
        if leader is None or not lost:
            continue
        if leader.leader in gone:
            state.move(topic_partition, PartitionPhase.OFFLINE)
            orphans.append(topic_partition)
        else:
            diminished.append(topic_partition)
    actions = yield from bring_online(state, orphans, without_dead_brokers(state, diminished))
    if not actions:
        batch = RequestBatch(state)
        batch.send_live_brokers()
        actions = batch.actions()
    return actions


def _brokers_added(state: ControllerState, come: set[int]) -> Decision:
    # A new broker needs the leaders' endpoints before LeaderAndIsr requests name them.
    batch = RequestBatch(state)
    batch.send_live_brokers()
    actions = [*batch.actions(), (yield from batch.full_metadata(come))]
    batch = RequestBatch(state)
    for number, topic_partition in enumerate(state.all_partitions()):
        if is_slice_full(number):
            yield
        if topic_partition.topic in state.deleting:
            continue
        for broker_id in state.replicas(topic_partition):
            if broker_id in come:
                state.move_replica((topic_partition, broker_id), ReplicaPhase.ONLINE)
                if topic_partition in state.leaders:
                    batch.leader_and_isr(broker_id, topic_partition)
    actions += batch.actions()
    actions += yield from bring_online(state, state.all_partitions())
    actions += yield from resume_reassignments(state)
    actions += yield from resume_deletions(state)
    return actions


def log_dir_failed(state: ControllerState, broker_id: int) -> Decision:
    """Send LeaderAndIsr for all replicas after a log directory failed; the broker's response names the failed ones."""
    batch = RequestBatch(state)
    for number, topic_partition in enumerate(state.all_partitions()):
        if is_slice_full(number):
            yield
        if broker_id in state.replicas(topic_partition) and topic_partition in state.leaders:
            batch.leader_and_isr(broker_id, topic_partition)
    return batch.actions()


def leader_and_isr_responded(
    state: ControllerState, broker_id: int, errors: Mapping[TopicPartition, ErrorCode]
) -> Decision:
    """Mark replicas offline that the broker reports as on a failed log directory, until the broker restarts."""
    lost: list[TopicPartition] = []
    for number, (topic_partition, code) in enumerate(errors.items()):
        if is_slice_full(number):
            yield
        replica = (topic_partition, broker_id)
        if code is ErrorCode.NONE:
            state.offline_replicas.discard(replica)
        elif code is ErrorCode.KAFKA_STORAGE_ERROR and replica not in state.offline_replicas:
            state.offline_replicas.add(replica)
            lost.append(topic_partition)
    changed: dict[TopicPartition, LeaderAndIsr] = {}
    orphans: list[TopicPartition] = []
    for topic_partition in sorted(lost):
        leader = state.leaders.get(topic_partition)
        if leader is None or topic_partition.topic in state.deleting:
            continue
        if broker_id not in state.replicas(topic_partition):
            continue  # Removed by a reassignment in the meantime.
        state.move_replica((topic_partition, broker_id), ReplicaPhase.OFFLINE)
        if leader.leader == broker_id:
            state.move(topic_partition, PartitionPhase.OFFLINE)
            orphans.append(topic_partition)
        else:
            shrunk = without(state, leader, {broker_id})
            if shrunk is not None:
                changed[topic_partition] = shrunk
    actions = yield from bring_online(state, orphans)
    return [*actions, WriteStates({}, changed)] if changed else actions
