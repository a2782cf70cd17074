"""The controller's decisions: `step(state, event, now_ms) -> actions`.

The runner feeds one event at a time, performs the actions in order and feeds what they bring (StatesWritten, answers)
before the next event from outside.  So nothing changes between looking and acting, and each decision sees the result
of the one before.

Order that matters: a partition's state is written to ZooKeeper before any broker is told of it; LeaderAndIsr goes out
before UpdateMetadata, and both before StopReplica, because clients must not be sent to a leader that does not know yet.

Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from kctl.model import NO_LEADER, LeaderAndIsr, TopicPartition
from kctl.server.controller import elections
from kctl.server.controller.actions import Action, Continue, DropDeletion, WriteStates
from kctl.server.controller.events import (
    BrokersRead,
    ControlledShutdownAsked,
    DeletionsRead,
    Elected,
    Event,
    LeaderAndIsrAnswered,
    Resigned,
    StatesWritten,
    StopReplicaAnswered,
    TopicsRead,
)
from kctl.server.controller.partition_states import PartitionPhase
from kctl.server.controller.replica_states import ReplicaPhase
from kctl.server.controller.requests import RequestBatch
from kctl.server.controller.state import ControllerState
from kctl.server.controller.topic_deletion import deletion_answered, resume_deletions


def step(state: ControllerState, event: Event, now_ms: int) -> list[Action]:
    """What follows from `event`; changes `state`, performs nothing.

    Events other than Elected are ignored while this broker is not the controller: they were queued before it resigned.
    """
    if isinstance(event, Elected):
        return _fail_over(state, event)
    if not state.is_active:
        return []
    match event:
        case Resigned():
            _forget(state)
            return []
        case BrokersRead():
            return _brokers_changed(state, event)
        case TopicsRead():
            return _topics_changed(state, event)
        case DeletionsRead():
            return _deletions_wanted(state, event)
        case StatesWritten():
            return _states_written(state, event)
        case LeaderAndIsrAnswered():
            return []
        case StopReplicaAnswered():
            return deletion_answered(state, event.broker_id, event.errors)
        case ControlledShutdownAsked():
            return _shut_down(state, event.broker_id)
        case _:
            assert_never(event)


def led_with_followers(state: ControllerState, broker_id: int) -> list[TopicPartition]:
    """Partitions that the broker leads although others could: what a controlled shutdown still waits for."""
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
    ):
        part.clear()


def _fail_over(state: ControllerState, event: Elected) -> list[Action]:
    _forget(state)
    state.is_active = True
    state.epoch, state.epoch_version = event.epoch, event.epoch_version
    state.brokers.update(event.brokers)
    state.topics.update(event.topics)
    state.leaders.update(event.leaders)
    state.unclean_topics.update(event.unclean_topics)
    batch = RequestBatch(state)
    batch.tell_brokers_only()
    actions = batch.actions()
    batch = RequestBatch(state)
    for topic_partition in state.all_partitions():
        _start_partition(state, topic_partition, batch)
    actions += batch.actions()
    deletions = _deletions_wanted(state, DeletionsRead(event.deletions))
    actions += _bring_online(state, list(state.all_partitions()))
    return actions + deletions


def _start_partition(state: ControllerState, topic_partition: TopicPartition, batch: RequestBatch) -> None:
    leader = state.leaders.get(topic_partition)
    state.move(topic_partition, PartitionPhase.NEW)
    if leader is not None:
        is_online = leader.leader in state.brokers
        state.move(topic_partition, PartitionPhase.ONLINE if is_online else PartitionPhase.OFFLINE)
    for broker_id in state.replicas(topic_partition):
        is_alive = broker_id in state.brokers
        state.move_replica((topic_partition, broker_id), ReplicaPhase.NEW)
        state.move_replica((topic_partition, broker_id), ReplicaPhase.ONLINE if is_alive else ReplicaPhase.OFFLINE)
        if is_alive and leader is not None:
            batch.leader_and_isr(broker_id, topic_partition)


def _brokers_changed(state: ControllerState, event: BrokersRead) -> list[Action]:
    bounced = {b for b, live in event.brokers.items() if b in state.brokers and state.brokers[b].epoch != live.epoch}
    gone = (state.brokers.keys() - event.brokers.keys()) | bounced
    come = event.brokers.keys() - (state.brokers.keys() - bounced)
    is_modified = any(event.brokers[b] != state.brokers[b] for b in event.brokers.keys() & state.brokers.keys())
    for broker_id in gone:
        del state.brokers[broker_id]
        state.shutting_down.discard(broker_id)
    if gone:
        # What the dead leave behind is written before the newcomers are looked at.
        actions = _brokers_gone(state, gone)
        return [*actions, Continue(event)] if come or is_modified else actions
    state.brokers.update(event.brokers)
    if come:
        return _brokers_come(state, come)
    if is_modified:
        batch = RequestBatch(state)
        batch.tell_brokers_only()
        return batch.actions()
    return []


def _brokers_gone(state: ControllerState, gone: set[int]) -> list[Action]:
    orphans: list[TopicPartition] = []
    changed: dict[TopicPartition, LeaderAndIsr] = {}
    for topic_partition in state.all_partitions():
        if topic_partition.topic in state.deleting:
            continue
        lost = [b for b in state.replicas(topic_partition) if b in gone]
        for broker_id in lost:
            state.move_replica((topic_partition, broker_id), ReplicaPhase.OFFLINE)
        leader = state.leaders.get(topic_partition)
        if leader is None or not lost:
            continue
        if leader.leader in gone:
            state.move(topic_partition, PartitionPhase.OFFLINE)
            orphans.append(topic_partition)
        else:
            shrunk = _without(state, leader, set(lost))
            if shrunk is not None:
                changed[topic_partition] = shrunk
    actions: list[Action] = _bring_online(state, orphans)
    if changed:
        actions.append(WriteStates({}, changed))
    if not actions:
        batch = RequestBatch(state)
        batch.tell_brokers_only()
        actions = batch.actions()
    return actions


def _brokers_come(state: ControllerState, come: set[int]) -> list[Action]:
    batch = RequestBatch(state)
    batch.tell_brokers_only()
    batch.tell_everything(come)
    for topic_partition in state.all_partitions():
        if topic_partition.topic in state.deleting:
            continue
        for broker_id in state.replicas(topic_partition):
            if broker_id in come:
                state.move_replica((topic_partition, broker_id), ReplicaPhase.ONLINE)
                if topic_partition in state.leaders:
                    batch.leader_and_isr(broker_id, topic_partition)
    actions = batch.actions()
    actions += _bring_online(state, list(state.all_partitions()))
    actions += resume_deletions(state)
    return actions


def _topics_changed(state: ControllerState, event: TopicsRead) -> list[Action]:
    state.unclean_topics = set(event.unclean_topics)
    for topic in state.topics.keys() - event.topics.keys():
        # Removed by hand: there is nobody left to tell what it was.
        for topic_partition in state.partitions_of(topic):
            _forget_partition(state, topic_partition)
        del state.topics[topic]
    added: list[TopicPartition] = []
    for topic, assignment in sorted(event.topics.items()):
        known = state.topics.get(topic)
        if topic in state.deleting:
            continue
        state.topics[topic] = assignment
        added += [
            TopicPartition(topic, partition)
            for partition in sorted(assignment.replicas)
            if known is None or partition not in known.replicas
        ]
    for topic_partition in added:
        state.move(topic_partition, PartitionPhase.NEW)
        for broker_id in state.replicas(topic_partition):
            state.move_replica((topic_partition, broker_id), ReplicaPhase.NEW)
    return _bring_online(state, added)


def _deletions_wanted(state: ControllerState, event: DeletionsRead) -> list[Action]:
    actions: list[Action] = []
    for topic in sorted(event.topics):
        if topic not in state.topics or not state.allows_topic_deletion:
            actions.append(DropDeletion(topic))
        else:
            state.deleting.add(topic)
    return actions + resume_deletions(state)


def _bring_online(state: ControllerState, candidates: list[TopicPartition]) -> list[Action]:
    """Elections for the candidates that have no leader."""
    created: dict[TopicPartition, LeaderAndIsr] = {}
    changed: dict[TopicPartition, LeaderAndIsr] = {}
    for topic_partition in candidates:
        if topic_partition.topic in state.deleting:
            continue
        phase = state.phase(topic_partition)
        if phase is PartitionPhase.NEW:
            live = tuple(b for b in state.replicas(topic_partition) if b in state.live_ids)
            if live:
                created[topic_partition] = LeaderAndIsr(live[0], 0, live, state.epoch)
        elif phase is PartitionPhase.OFFLINE:
            known = state.leaders[topic_partition]
            changed_to = _elect_offline(state, topic_partition, known)
            if changed_to is not None:
                changed[topic_partition] = changed_to
    return [WriteStates(created, changed)] if created or changed else []


def _elect_offline(state: ControllerState, topic_partition: TopicPartition, known: LeaderAndIsr) -> LeaderAndIsr | None:
    elected = elections.offline(
        state.replicas(topic_partition),
        known.isr,
        state.live_ids,
        allows_unclean=topic_partition.topic in state.unclean_topics,
    )
    if elected is not None:
        return _next(state, known, elected.leader, elected.isr)
    if known.leader == NO_LEADER:
        return None
    # The last in-sync replicas stay listed: only they may lead again.
    return _next(state, known, NO_LEADER, known.isr)


def _next(state: ControllerState, known: LeaderAndIsr, leader: int, isr: tuple[int, ...]) -> LeaderAndIsr:
    return replace(known, leader=leader, isr=isr, leader_epoch=known.leader_epoch + 1, controller_epoch=state.epoch)


def _without(state: ControllerState, known: LeaderAndIsr, brokers: set[int]) -> LeaderAndIsr | None:
    """The in-sync replicas without some brokers, or None when nothing changes; the last one always stays."""
    isr = tuple(b for b in known.isr if b not in brokers)
    if isr == known.isr:
        return None
    return _next(state, known, known.leader, isr or known.isr[:1])


def _states_written(state: ControllerState, event: StatesWritten) -> list[Action]:
    batch = RequestBatch(state)
    for topic_partition, leader in event.written.items():
        is_new = topic_partition not in state.leaders
        state.leaders[topic_partition] = leader
        has_leader = leader.leader != NO_LEADER
        state.move(topic_partition, PartitionPhase.ONLINE if has_leader else PartitionPhase.OFFLINE)
        for broker_id in state.replicas(topic_partition):
            if broker_id in state.brokers:
                if state.replica_phase((topic_partition, broker_id)) is ReplicaPhase.NEW:
                    state.move_replica((topic_partition, broker_id), ReplicaPhase.ONLINE)
                batch.leader_and_isr(broker_id, topic_partition, is_new=is_new)
        batch.metadata(topic_partition)
    actions = batch.actions()
    if event.conflicts:
        actions += _retry(state, event)
    return actions


def _retry(state: ControllerState, event: StatesWritten) -> list[Action]:
    """Somebody else wrote: take over what is there, and elect again where the leader is gone."""
    again: list[TopicPartition] = []
    for topic_partition, current in event.conflicts.items():
        state.leaders[topic_partition] = current
        if state.phase(topic_partition) is PartitionPhase.NEW:
            state.move(topic_partition, PartitionPhase.OFFLINE)
        if current.leader not in state.live_ids:
            again.append(topic_partition)
    return _bring_online(state, again)


def _shut_down(state: ControllerState, broker_id: int) -> list[Action]:
    """KAFKA-340: leadership moves away while the broker still serves, so that clients notice nothing."""
    if broker_id not in state.brokers:
        return []
    state.shutting_down.add(broker_id)
    changed: dict[TopicPartition, LeaderAndIsr] = {}
    batch = RequestBatch(state)
    for topic_partition, known in state.leaders.items():
        replicas = state.replicas(topic_partition)
        if broker_id not in replicas or len(replicas) == 1 or topic_partition.topic in state.deleting:
            continue
        if known.leader == broker_id:
            elected = elections.controlled_shutdown(replicas, known.isr, state.live_ids, state.shutting_down)
            if elected is not None:
                changed[topic_partition] = _next(state, known, elected.leader, elected.isr)
            continue
        batch.stop_replica(broker_id, topic_partition, is_deleting=False)
        shrunk = _without(state, known, {broker_id})
        if shrunk is not None:
            changed[topic_partition] = shrunk
    actions: list[Action] = [WriteStates({}, changed)] if changed else []
    return actions + batch.actions()


def _forget_partition(state: ControllerState, topic_partition: TopicPartition) -> None:
    state.leaders.pop(topic_partition, None)
    state.partition_phases.pop(topic_partition, None)
    for replica in [r for r in state.replica_phases if r[0] == topic_partition]:
        del state.replica_phases[replica]
