"""Reassignments step by step: replicas, leaders and deleted logs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kctl.errors import ErrorCode
from kctl.model import NO_LEADER, TopicPartition
from kctl.server.cluster.controller.actions import Action, SendLeaderAndIsr, SendStopReplica, WriteStates
from kctl.server.cluster.controller.events import (
    ElectionRequested,
    Event,
    LeaderAndIsrResponseReceived,
    ReassignmentsRequested,
    StatesRead,
    StatesWritten,
    StopReplicaResponseReceived,
)
from tests.unit.server.controller_world import World, topic

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Moving(World):
    """Brokers that respond to StopReplica on request, and leaders that report their ISR."""

    def __init__(self, *ids: int, replicas: tuple[int, ...]) -> None:
        self.waiting: list[StopReplicaResponseReceived] = []
        self.written_between: tuple[int, ...] | None = None
        """The in-sync replicas according to the leader."""
        super().__init__(*ids, topics={"t": topic(replicas, replicas)})

    def perform(self, action: Action) -> Event | None:
        if isinstance(action, WriteStates) and self.written_between is not None:
            self.write(self.written_between)
            self.written_between = None
            return StatesWritten({}, {T0: self.znodes[T0]})
        result = super().perform(action)
        if isinstance(result, StopReplicaResponseReceived):
            self.waiting.append(result)
            return None
        return result

    def response(self) -> None:
        """All StopReplica requests get responses."""
        while self.waiting:
            self.feed(self.waiting.pop(0))

    def reassign(self, *expected: int) -> list[Action]:
        """Reassigns to these brokers; without any, cancels."""
        return self.feed(ReassignmentsRequested({T0: expected or None}))

    def reassign_both(self, *expected: int) -> list[Action]:
        """Reassigns both partitions."""
        return self.feed(ReassignmentsRequested({T0: expected or None, T1: expected or None}))

    def in_sync(self, *isr: int) -> list[Action]:
        """The leader reports this ISR."""
        self.write(isr)
        return self.feed(StatesRead({T0: self.znodes[T0]}))

    def write(self, isr: tuple[int, ...]) -> None:
        """The leader writes the ISR, and the controller has not read it yet."""
        known = self.znodes[T0]
        self.znodes[T0] = replace(known, isr=isr, partition_epoch=known.partition_epoch + 1)

    def elect_preferred(self) -> None:
        self.feed(ElectionRequested(None, is_unclean=False))

    @property
    def leader_and_isr(self) -> tuple[int, tuple[int, ...]]:
        return self.znodes[T0].leader, self.znodes[T0].isr


def test_a_replica_may_be_added_again_before_its_removal_is_acknowledged() -> None:
    world = Moving(1, 2, 3, replicas=(1, 2, 3))
    world.reassign(1, 2)
    assert world.state.replicas(T0) == (1, 2)
    actions = world.reassign(1, 2, 3)
    reported = [action for action in actions if isinstance(action, SendLeaderAndIsr) and action.broker_id == 3]
    assert reported[0].partitions[0].is_new
    world.response()
    world.in_sync(1, 2, 3)
    world.live(1, 2)
    assert world.leader_and_isr == (1, (1, 2))
    world.live(1, 2, 3)
    assert world.state.replicas(T0) == (1, 2, 3)


def test_partitions_of_one_reassignment_request_complete_independently() -> None:
    world = Moving(1, 2, 3, replicas=(1, 2))
    added = [
        (action.broker_id, updates.topic_partition)
        for action in world.reassign_both(1, 2, 3)
        if isinstance(action, SendLeaderAndIsr)
        for updates in action.partitions
        if updates.is_new
    ]
    assert added == [(3, T0), (3, T1)]
    stopped = [action for action in world.reassign_both() if isinstance(action, SendStopReplica)]
    assert [(action.broker_id, set(action.partitions)) for action in stopped] == [(3, {T0, T1})]
    world.reassign_both(1, 3)
    world.live(1, 2)
    assert world.state.replicas(T1) == (1, 3, 2)


def test_a_removed_replica_on_a_failed_disk_triggers_no_election() -> None:
    world = Moving(1, 2, 3, replicas=(1, 2, 3))
    world.reassign(1, 2)
    assert world.feed(LeaderAndIsrResponseReceived(3, {T0: ErrorCode.KAFKA_STORAGE_ERROR})) == []
    assert world.leader_and_isr == (1, (1, 2))


def test_cancelling_a_reassignment_moves_leadership_off_an_added_replica() -> None:
    """The preferred replica of the target is an added one, and becomes leader as soon as it is in sync."""
    world = Moving(1, 2, 3, 4, replicas=(1, 2))
    world.reassign(3, 4)
    world.in_sync(1, 2, 3)
    world.elect_preferred()
    assert world.leader_and_isr == (3, (1, 2, 3))
    actions = world.reassign()
    assert [*world.leader_and_isr] == [1, (1, 2)]
    roles = [number for number, action in enumerate(actions) if isinstance(action, SendLeaderAndIsr)]
    stops = [number for number, action in enumerate(actions) if isinstance(action, SendStopReplica)]
    assert max(roles) < min(stops)
    assert {action.broker_id for action in actions if isinstance(action, SendStopReplica)} == {3, 4}


def test_a_cancelled_reassignment_waits_for_offline_in_sync_replicas_to_lead() -> None:
    world = Moving(1, 2, 3, 4, replicas=(1, 2))
    world.reassign(3, 4)
    world.in_sync(1, 2, 3)
    world.elect_preferred()
    world.state.shutting_down.update({1, 2})
    world.reassign()
    assert world.leader_and_isr == (NO_LEADER, (1, 2))
    world.live(3, 4)
    world.live(1, 3, 4)
    assert [*world.leader_and_isr] == [1, (1,)]


def test_the_only_in_sync_replica_stays_in_the_isr() -> None:
    world = Moving(1, 2, 3, 4, replicas=(1, 2))
    world.reassign(3, 4)
    world.in_sync(1, 2, 3)
    world.live(3, 4)
    assert world.leader_and_isr == (3, (3,))
    before = world.state.replicas(T0)
    for expected in ((), (4, 1)):
        world.reassign(*expected)
        assert world.state.replicas(T0) == before
        assert world.waiting == []


@pytest.mark.parametrize("leader", [1, 3])
def test_a_concurrent_leader_write_does_not_restore_removed_replicas(leader: int) -> None:
    world = Moving(1, 2, 3, replicas=(leader, 2, 4 - leader))
    world.written_between = (1, 3)
    world.reassign(1, 2)
    assert world.leader_and_isr == (1, (1,))
    assert world.state.leaders == world.znodes
