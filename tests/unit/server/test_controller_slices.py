"""A decision about thousands of partitions is made in slices, with the same outcome as in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.server.cluster.controller.actions import (
    Action,
    Continue,
    DeleteTopicNodes,
    SendLeaderAndIsr,
    SendUpdateMetadata,
    WriteStates,
)
from kctl.server.cluster.controller.control_requests import leader_and_isr_request, update_metadata_request
from kctl.server.cluster.controller.events import (
    BrokersRead,
    ControlledShutdownRequested,
    DeletionsRead,
    Elected,
    ElectionRequested,
    Event,
    LeaderAndIsrResponseReceived,
    LogDirFailed,
    ReassignmentsRequested,
    RebalanceDue,
    StatesWritten,
    StopReplicaResponseReceived,
    TopicNodesDeleted,
    TopicsRead,
)
from kctl.server.cluster.controller.rules.decisions import DECISIONS_PER_SLICE_MAX
from kctl.server.cluster.controller.state import ControllerState, PartitionPhase, Replica, ReplicaPhase
from kctl.server.cluster.controller.step import decide, step
from tests.unit.server.controller_world import brokers, topic

TOPIC = topic(*[(1, 2), (2, 1)] * (2 * DECISIONS_PER_SLICE_MAX))
PHASES_PER_PARTITION_MAX = 6
"""How often one slice looks up the states of a partition and its two replicas."""


class CountingState(ControllerState):
    """Counts how often the state of a partition or a replica is looked up."""

    lookups = 0
    listed = 0
    """How often the replicas of a partition are looked up."""

    def replicas(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        self.listed += 1
        return super().replicas(topic_partition)

    def phase(self, topic_partition: TopicPartition) -> PartitionPhase:
        self.lookups += 1
        return super().phase(topic_partition)

    def replica_phase(self, replica: Replica) -> ReplicaPhase:
        self.lookups += 1
        return super().replica_phase(replica)


class Histories:
    """Two controllers with the same events: one decides in slices, the other at once."""

    def __init__(self) -> None:
        self.sliced, self.whole = CountingState(1), ControllerState(1)
        self.pauses = 0
        """Between the slices of the last decision."""
        self.listing_slices = 0
        """Slices of the last decision that only list the replicas of a large topic."""

    def feed(self, event: Event) -> list[Action]:
        """The actions that follow, as the runner would collect them."""
        actions: list[Action] = []
        pending: list[Event] = [event]
        while pending:
            each = pending.pop(0)
            made = self._decided(each)
            assert made == step(self.whole, each, 0)
            pending += [action.event for action in made if isinstance(action, Continue)]
            actions += made
        assert self.sliced.leaders == self.whole.leaders
        assert self.sliced.replica_phases == self.whole.replica_phases
        return actions

    def _decided(self, event: Event) -> list[Action]:
        decision = decide(self.sliced, event, 0)
        self.pauses = -1
        self.listing_slices = 0
        while True:
            self.pauses += 1
            self.sliced.lookups = self.sliced.listed = 0
            try:
                next(decision)
            except StopIteration as end:
                actions: list[Action] = end.value
                return actions
            finally:
                self.listing_slices += self.sliced.listed >= len(TOPIC.replicas) and not self.sliced.lookups
                assert self.sliced.lookups <= PHASES_PER_PARTITION_MAX * DECISIONS_PER_SLICE_MAX


def written(actions: Sequence[Action]) -> StatesWritten:
    writes = [action for action in actions if isinstance(action, WriteStates)]
    return StatesWritten({tp: state for write in writes for tp, state in {**write.created, **write.changed}.items()})


@pytest.mark.long
def test_decisions_about_a_large_topic_are_made_in_slices() -> None:
    histories = Histories()
    histories.feed(Elected(1, 1, brokers(1, 2), {}, {}, frozenset(), frozenset(), {}))
    created = written(histories.feed(TopicsRead({"large": TOPIC}, frozenset(), frozenset())))
    assert len(created.written) == len(TOPIC.replicas)
    histories.feed(created)
    histories.feed(written(histories.feed(ControlledShutdownRequested(2))))
    histories.feed(written(histories.feed(BrokersRead(brokers(1)))))
    histories.feed(written(histories.feed(BrokersRead(brokers(1, 2)))))
    leaders = dict(histories.whole.leaders)
    histories.feed(Elected(2, 2, brokers(1, 2), {"large": TOPIC}, leaders, frozenset(), frozenset(), {}))
    assert histories.feed(DeletionsRead(frozenset({"large"})))
    assert histories.listing_slices == 1, "the replicas of a topic are listed in a slice of their own"


@pytest.mark.long
def test_decisions_about_many_small_topics_are_made_in_slices() -> None:
    topics = {f"t{number}": topic((1, 2)) for number in range(3 * DECISIONS_PER_SLICE_MAX)}
    errors = {TopicPartition(name, 0): ErrorCode.NONE for name in topics}
    histories = Histories()
    histories.feed(Elected(1, 1, brokers(1, 2), {}, {}, frozenset(), frozenset(), {}))
    histories.feed(written(histories.feed(TopicsRead(topics, frozenset(), frozenset()))))
    histories.feed(LeaderAndIsrResponseReceived(2, errors))
    assert histories.pauses == 3
    histories.feed(DeletionsRead(frozenset(topics)))
    assert histories.feed(StopReplicaResponseReceived(1, errors)) == []
    assert histories.feed(StopReplicaResponseReceived(2, errors)) == [DeleteTopicNodes(name) for name in sorted(topics)]
    for name in topics:
        histories.feed(TopicNodesDeleted(name))
    assert not histories.sliced.topics


def test_requests_about_a_large_topic_are_built_in_slices() -> None:
    state = ControllerState(1)
    step(state, Elected(1, 1, brokers(1, 2), {}, {}, frozenset(), frozenset(), {}), 0)
    actions = step(state, written(step(state, TopicsRead({"large": TOPIC}, frozenset(), frozenset()), 0)), 0)
    roles = next(action for action in actions if isinstance(action, SendLeaderAndIsr))
    metadata = next(action for action in actions if isinstance(action, SendUpdateMetadata))
    pauses = len(TOPIC.replicas) // DECISIONS_PER_SLICE_MAX
    assert len(list(leader_and_isr_request(state, 1, roles))) == pauses
    assert len(list(update_metadata_request(state, 1, metadata.partitions))) == pauses


@pytest.mark.long
def test_elections_and_reassignments_of_all_partitions_are_decided_in_slices() -> None:
    histories = Histories()
    histories.feed(Elected(1, 1, brokers(1, 2, 3), {}, {}, frozenset(), frozenset(), {}))
    histories.feed(written(histories.feed(TopicsRead({"large": TOPIC}, frozenset(), frozenset()))))
    slices = len(TOPIC.replicas) // DECISIONS_PER_SLICE_MAX
    histories.feed(LogDirFailed(2))
    assert histories.pauses >= slices
    histories.feed(RebalanceDue(10))
    assert histories.pauses >= slices
    histories.feed(ElectionRequested(None, is_unclean=False, trigger="test"))
    assert histories.pauses >= slices
    moves = {TopicPartition("large", partition): (2, 3) for partition in TOPIC.replicas}
    histories.feed(ReassignmentsRequested(moves))
    assert histories.whole.topics["large"].adding_replicas == dict.fromkeys(TOPIC.replicas, (3,))
    assert histories.whole.topics == histories.sliced.topics
    assert histories.pauses >= slices


def test_a_reassignment_of_a_large_topic_copies_its_assignment_once() -> None:
    """Copied for each partition, the assignment of 10,000 partitions took a second."""

    class Copied(dict[int, tuple[int, ...]]):
        copies = 0

        def __iter__(self) -> Any:  # Without it, copying calls no method.
            return super().__iter__()

        def keys(self) -> Any:
            Copied.copies += 1
            return super().keys()

    state = ControllerState(1)
    step(state, Elected(1, 1, brokers(1, 2, 3), {}, {}, frozenset(), frozenset(), {}), 0)
    large = replace(TOPIC, replicas=Copied(TOPIC.replicas))
    step(state, written(step(state, TopicsRead({"large": large}, frozenset(), frozenset()), 0)), 0)
    Copied.copies = 0
    moves = {TopicPartition("large", partition): (2, 3) for partition in TOPIC.replicas}
    step(state, ReassignmentsRequested(moves), 0)
    assert Copied.copies == 1


def test_topics_that_have_not_changed_are_not_visited() -> None:
    class Visited(dict[int, tuple[int, ...]]):
        visits = 0

        def __iter__(self) -> Any:
            Visited.visits += 1
            return super().__iter__()

    state = ControllerState(1)
    large = replace(TOPIC, replicas=Visited(TOPIC.replicas))
    step(state, Elected(1, 1, brokers(1, 2), {}, {}, frozenset(), frozenset(), {}), 0)
    step(state, written(step(state, TopicsRead({"large": large}, frozenset(), frozenset()), 0)), 0)
    Visited.visits = 0
    actions = step(state, TopicsRead({"large": large, "small": topic((1,))}, frozenset(), frozenset()), 0)
    assert [tp.topic for tp in written(actions).written] == ["small"]
    assert Visited.visits == 0
