"""Leader elections, writing and sending their results, controlled shutdown, preferred leaders.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from kctl.errors import ErrorCode
from kctl.model import NO_LEADER, LeaderAndIsr, TopicPartition
from kctl.server.cluster.controller.actions import Action, CompleteRequest, LogElection, WriteStates
from kctl.server.cluster.controller.events import ZNODE, ElectionRequested, RebalanceDue, StatesWritten
from kctl.server.cluster.controller.rules.decisions import Decision, RequestBatch, is_slice_full
from kctl.server.cluster.controller.state import ControllerState, PartitionPhase, ReplicaPhase
from kctl.system.steps import Steps

# The four ways in which the controller elects a partition leader. Kafka: PartitionLeaderElectionAlgorithms.
#
# All go through the assignment in order, so the preferred (first) replica wins when it is eligible. Each returns the
# new leader and in-sync replicas, or None when no replica is eligible. Pure.


class Elected(NamedTuple):
    """The outcome of an election."""

    leader: int
    isr: tuple[int, ...]
    is_unclean: bool = False
    """The leader was not in sync, so acknowledged records may be lost."""


def offline(
    assignment: Sequence[int], isr: Sequence[int], live: Collection[int], *, allows_unclean: bool
) -> Elected | None:
    """For a lost leader: the first live in-sync replica; else, if allowed, the first live one, alone in the ISR."""
    for replica in assignment:
        if replica in live and replica in isr:
            return Elected(replica, tuple(other for other in isr if other in live))
    if allows_unclean:
        for replica in assignment:
            if replica in live:
                return Elected(replica, (replica,), is_unclean=True)
    return None


def reassign(target: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Elected | None:
    """For a completed reassignment: the first of the target replicas that is live and in sync."""
    return next((Elected(replica, tuple(isr)) for replica in target if replica in live and replica in isr), None)


def preferred(assignment: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Elected | None:
    """Return the first replica of the assignment, if it is live and in sync."""
    return Elected(assignment[0], tuple(isr)) if assignment and assignment[0] in live and assignment[0] in isr else None


def controlled_shutdown(
    assignment: Sequence[int], isr: Sequence[int], live: Collection[int], shutting_down: Collection[int]
) -> Elected | None:
    """For a leader that shuts down: the first live in-sync replica that stays; the ones shutting down leave the ISR."""
    staying = tuple(replica for replica in isr if replica not in shutting_down)
    return next((Elected(replica, staying) for replica in assignment if replica in live and replica in staying), None)


AUTOMATIC = "automatic"
_NOT_LOGGED = frozenset({ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED})


def bring_online(
    state: ControllerState,
    candidates: Iterable[TopicPartition],
    shrunk: Mapping[TopicPartition, LeaderAndIsr] = MappingProxyType({}),
) -> Decision:
    """Elect leaders for the candidates without one; states in `shrunk` are written and sent with them."""
    created: dict[TopicPartition, LeaderAndIsr] = {}
    changed: dict[TopicPartition, LeaderAndIsr] = {}
    for number, topic_partition in enumerate(candidates):
        if is_slice_full(number):
            yield
        if topic_partition.topic in state.deleting:
            continue
        phase = state.phase(topic_partition)
        if phase is PartitionPhase.NEW:
            may_lead = state.live_for(topic_partition)
            live = tuple(broker_id for broker_id in state.replicas(topic_partition) if broker_id in may_lead)
            if live:
                created[topic_partition] = LeaderAndIsr(live[0], 0, live, state.epoch)
        elif phase is PartitionPhase.OFFLINE:
            known = state.leaders[topic_partition]
            changed_to = _elect_offline(state, topic_partition, known)
            if changed_to is not None:
                changed[topic_partition] = changed_to
    changed.update(shrunk)
    return [WriteStates(created, changed)] if created or changed else []


def _elect_offline(state: ControllerState, topic_partition: TopicPartition, known: LeaderAndIsr) -> LeaderAndIsr | None:
    elected = offline(
        state.replicas(topic_partition),
        known.isr,
        state.live_for(topic_partition),
        allows_unclean=topic_partition.topic in state.unclean_topics,
    )
    if elected is not None:
        return next_state(state, known, elected.leader, elected.isr)
    if known.leader == NO_LEADER:
        return None
    # The last in-sync replicas stay in the ISR: only they are eligible.
    return next_state(state, known, NO_LEADER, known.isr)


def next_state(state: ControllerState, known: LeaderAndIsr, leader: int, isr: tuple[int, ...]) -> LeaderAndIsr:
    """Return the state with a new leader and ISR, this controller's epoch, and the leader epoch incremented."""
    return replace(known, leader=leader, isr=isr, leader_epoch=known.leader_epoch + 1, controller_epoch=state.epoch)


def without(state: ControllerState, known: LeaderAndIsr, brokers: set[int]) -> LeaderAndIsr | None:
    """Return the state without some brokers in the ISR, or None if nothing changes; the last ISR member always
    stays.
    """
    isr = tuple(broker_id for broker_id in known.isr if broker_id not in brokers)
    if isr == known.isr:
        return None
    return next_state(state, known, known.leader, isr or known.isr[:1])


def among_replicas(state: ControllerState, topic_partition: TopicPartition) -> LeaderAndIsr:
    """Return the state limited to assigned replicas: one that a reassignment removed may still lead or be in the
    ISR.
    """
    known = state.leaders[topic_partition]
    replicas = state.replicas(topic_partition)
    isr = tuple(replica for replica in known.isr if replica in replicas)
    leader = known.leader
    if leader not in replicas:
        elected = reassign(replicas, isr, state.live_for(topic_partition))
        leader = NO_LEADER if elected is None else elected.leader
    return next_state(state, known, leader, isr)


def without_dead_brokers(
    state: ControllerState, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, LeaderAndIsr]:
    """Return the states with dead ISR members removed, so that a live leader need not wait for
    replica.lag.time.max.ms.
    """
    changed: dict[TopicPartition, LeaderAndIsr] = {}
    for topic_partition in partitions:
        known = state.leaders.get(topic_partition)
        if known is None or topic_partition.topic in state.deleting:
            continue
        dead = {
            broker_id
            for broker_id in known.isr
            if broker_id not in state.brokers or (topic_partition, broker_id) in state.offline_replicas
        }
        if known.leader not in dead and (fewer := without(state, known, dead)) is not None:
            changed[topic_partition] = fewer
    return changed


def without_restarted_brokers(
    state: ControllerState, returned: Mapping[TopicPartition, frozenset[int]]
) -> Steps[dict[TopicPartition, LeaderAndIsr]]:
    """Return the states whose ISR includes restarted brokers, with these removed if other ISR members have not
    restarted.

    A broker that lost power may restart with fewer records than it had acknowledged, and so fast that only its new
    registration shows the restart: as leader it would make its followers truncate acknowledged records.  An active
    controller handles a restart the same way, see membership.brokers_changed.

    If all ISR members have restarted, no other leader is better.  The state is rewritten nevertheless, so that later
    restarts can be distinguished from these.
    """
    changed: dict[TopicPartition, LeaderAndIsr] = {}
    for number, (topic_partition, brokers) in enumerate(returned.items()):
        if is_slice_full(number):
            yield
        known = state.leaders[topic_partition]
        may_lead = state.live_for(topic_partition)
        alive = tuple(broker_id for broker_id in known.isr if broker_id in may_lead)
        sure = tuple(broker_id for broker_id in alive if broker_id not in brokers)
        if brokers and known.leader in alive and not sure:
            changed[topic_partition] = next_state(state, known, known.leader, alive)
        elif brokers and sure:
            preferred = next((broker_id for broker_id in state.replicas(topic_partition) if broker_id in sure), sure[0])
            leader = known.leader if known.leader in sure else preferred
            changed[topic_partition] = next_state(state, known, leader, sure)
    return changed


def states_written(state: ControllerState, event: StatesWritten) -> Decision:
    """Send the states, which are written, to the brokers."""
    batch = RequestBatch(state)
    for number, (topic_partition, leader) in enumerate(event.written.items()):
        if is_slice_full(number):
            yield
        state.leaders[topic_partition] = leader
        has_leader = leader.leader != NO_LEADER
        state.move(topic_partition, PartitionPhase.ONLINE if has_leader else PartitionPhase.OFFLINE)
        receivers: list[tuple[int, bool]] = []
        for broker_id in state.replicas(topic_partition):
            if broker_id in state.brokers:
                replica = (topic_partition, broker_id)
                is_new = state.replica_phase(replica) is ReplicaPhase.NEW
                if is_new:
                    state.move_replica(replica, ReplicaPhase.ONLINE)
                receivers.append((broker_id, is_new))
        batch.leader_and_isr_of_all(topic_partition, receivers)
    actions = batch.actions()
    if event.conflicts:
        actions += yield from _retry(state, event)
    return actions


def _retry(state: ControllerState, event: StatesWritten) -> Decision:
    """Take over states that another writer changed, and elect again where these name dead brokers."""
    again: list[TopicPartition] = []
    batch = RequestBatch(state)
    for topic_partition, current in event.conflicts.items():
        state.leaders[topic_partition] = current
        # Brokers that waited for this decision have not received the state; the others have.
        for broker_id in state.replicas(topic_partition):
            if broker_id in state.brokers:
                batch.leader_and_isr(broker_id, topic_partition)
        if state.phase(topic_partition) is PartitionPhase.NEW:
            state.move(topic_partition, PartitionPhase.OFFLINE)
        if current.leader not in state.live_for(topic_partition):
            again.append(topic_partition)
    strays = {tp: among_replicas(state, tp) for tp in event.conflicts if _has_removed_replicas(state, tp)}
    elected = yield from bring_online(state, again, without_dead_brokers(state, event.conflicts) | strays)
    return batch.actions() + elected


def _has_removed_replicas(state: ControllerState, topic_partition: TopicPartition) -> bool:
    """Return whether the lost write was the completion of a reassignment."""
    if topic_partition.topic in state.deleting:
        return False
    known, replicas = state.leaders[topic_partition], state.replicas(topic_partition)
    return not set(known.isr) <= set(replicas) and not set(known.isr).isdisjoint(replicas)


def shut_down(state: ControllerState, broker_id: int) -> Decision:
    """Move leadership away from a broker while it still serves clients.  KAFKA-340."""
    if broker_id not in state.brokers:
        return []
    state.shutting_down.add(broker_id)
    changed: dict[TopicPartition, LeaderAndIsr] = {}
    batch = RequestBatch(state)
    for number, (topic_partition, known) in enumerate(state.leaders.items()):
        if is_slice_full(number):
            yield
        replicas = state.replicas(topic_partition)
        if broker_id not in replicas or len(replicas) == 1 or topic_partition.topic in state.deleting:
            continue
        if known.leader == broker_id:
            elected = controlled_shutdown(replicas, known.isr, state.live_for(topic_partition), state.shutting_down)
            if elected is not None:
                changed[topic_partition] = next_state(state, known, elected.leader, elected.isr)
            continue
        batch.stop_replica(broker_id, topic_partition, is_deleting=False)
        shrunk = without(state, known, {broker_id})
        if shrunk is not None:
            changed[topic_partition] = shrunk
    actions: list[Action] = [WriteStates({}, changed)] if changed else []
    return actions + batch.actions()


def election_requested(state: ControllerState, event: ElectionRequested) -> Decision:
    """Hold preferred or unclean elections; the response has an error code per partition.  KIP-460."""
    requested = state.all_partitions() if event.partitions is None else event.partitions
    outcome: dict[TopicPartition, ErrorCode] = {}
    changed: dict[TopicPartition, LeaderAndIsr] = {}
    for number, topic_partition in enumerate(requested):
        if is_slice_full(number):
            yield
        decision = _elect(state, topic_partition, is_unclean=event.is_unclean)
        if isinstance(decision, LeaderAndIsr):
            changed[topic_partition] = decision
            decision = ErrorCode.NONE
        outcome[topic_partition] = decision
    # A request gets a response; a znode does not.
    has_response = event.trigger != ZNODE
    refused = {} if has_response else {tp: error for tp, error in outcome.items() if error not in _NOT_LOGGED}
    actions: list[Action] = [WriteStates({}, changed)] if changed else []
    if changed or refused:
        actions.append(LogElection(event.trigger, event.is_unclean, tuple(changed), refused))
    return [*actions, CompleteRequest(event.token, outcome)]


def _elect(state: ControllerState, topic_partition: TopicPartition, *, is_unclean: bool) -> LeaderAndIsr | ErrorCode:
    known = state.leaders.get(topic_partition)
    if known is None or topic_partition.topic not in state.topics:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_partition.topic in state.deleting:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    replicas, live = state.replicas(topic_partition), state.live_for(topic_partition)
    if is_unclean:
        if known.leader in live:
            return ErrorCode.ELECTION_NOT_NEEDED
        elected = offline(replicas, known.isr, live, allows_unclean=True)
        missing = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    else:
        if known.leader == replicas[0]:
            return ErrorCode.ELECTION_NOT_NEEDED
        elected = preferred(replicas, known.isr, live)
        missing = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return missing if elected is None else next_state(state, known, elected.leader, elected.isr)


def rebalance(state: ControllerState, event: RebalanceDue) -> Decision:
    """auto.leader.rebalance.enable: elects preferred replicas of brokers that lead too few of their partitions."""
    counts: Counter[int] = Counter()
    """By broker, the partitions of which it is the preferred leader."""
    led_by_others: dict[int, list[TopicPartition]] = {}
    for number, topic_partition in enumerate(state.all_partitions()):
        if is_slice_full(number):
            yield
        known = state.leaders.get(topic_partition)
        if known is None or topic_partition.topic in state.deleting:
            continue
        preferred = state.replicas(topic_partition)[0]
        counts[preferred] += 1
        if known.leader != preferred:
            led_by_others.setdefault(preferred, []).append(topic_partition)
    changed: dict[TopicPartition, LeaderAndIsr] = {}
    for broker_id, partitions in led_by_others.items():
        if len(partitions) * 100 <= event.imbalance_percentage * counts[broker_id]:
            continue
        for number, topic_partition in enumerate(partitions):
            if is_slice_full(number):
                yield
            decision = _elect(state, topic_partition, is_unclean=False)
            if isinstance(decision, LeaderAndIsr):
                changed[topic_partition] = decision
    if not changed:
        return []
    return [WriteStates({}, changed), LogElection(AUTOMATIC, is_unclean=False, elected=tuple(changed), refused={})]
