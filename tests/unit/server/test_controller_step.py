"""The controller's decisions, events in and actions out; and random histories against invariants."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import ErrorCode
from kctl.model import LEADER_DURING_DELETE, NO_LEADER, LeaderAndIsr, TopicPartition
from kctl.server.cluster.controller.actions import (
    DeleteTopicNodes,
    EndDeletionWaits,
    RejectTopicDeletion,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    WriteStates,
)
from kctl.server.cluster.controller.events import (
    BrokersRead,
    ControlledShutdownRequested,
    DeletionsRead,
    Elected,
    Resigned,
    StatesWritten,
    StopReplicaResponseReceived,
    TopicNodesDeleted,
    UncleanTopicsRead,
)
from kctl.server.cluster.controller.rules.decisions import EPOCH_DURING_DELETE
from kctl.server.cluster.controller.rules.topic_deletion import deletion_obstacle
from kctl.server.cluster.controller.state import PartitionPhase
from kctl.server.cluster.controller.step import led_with_followers, step
from tests.unit.server.controller_world import ID, World, broker, brokers, topic

T0 = TopicPartition("t", 0)


def test_a_new_topic_is_written_before_requests_to_brokers_are_sent() -> None:
    world = World(1, 2)
    actions = world.create("t", topic((2, 1)))
    assert [type(a) for a in actions] == [WriteStates, SendLeaderAndIsr, SendLeaderAndIsr, SendUpdateMetadata]
    assert world.znodes[T0] == LeaderAndIsr(2, 0, (2, 1), controller_epoch=1)
    reported = actions[1]
    assert isinstance(reported, SendLeaderAndIsr)
    assert reported.partitions[0].is_new
    assert reported.partitions[0].topic_id == ID


def test_a_new_controller_first_sends_the_live_brokers() -> None:
    world = World(1, topics={"t": topic((1,))})
    first = world.reported[0]
    assert isinstance(first, SendUpdateMetadata)
    assert first.partitions == ()


def test_a_new_topic_without_live_replicas_waits_for_one() -> None:
    world = World(1)
    world.create("t", topic((2,)))
    assert T0 not in world.znodes
    world.live(1, 2)
    assert world.znodes[T0].leader == 2


def test_expansion_brings_only_the_new_partitions_online() -> None:
    world = World(1, topics={"t": topic((1,))})
    actions = world.create("t", topic((1,), (1,)))
    written = next(a for a in actions if isinstance(a, WriteStates))
    assert list(written.created) == [TopicPartition("t", 1)]


def test_after_a_leader_failure_the_next_in_sync_replica_leads_in_a_new_epoch() -> None:
    world = World(1, 2, 3, topics={"t": topic((2, 3))})
    world.live(1, 3)
    assert world.znodes[T0] == LeaderAndIsr(3, 1, (3,), controller_epoch=1, partition_epoch=1)


def test_a_failed_follower_leaves_the_isr_and_the_leader_epoch_is_increased() -> None:
    world = World(1, 2, 3, topics={"t": topic((2, 3))})
    world.live(1, 2)
    assert world.znodes[T0] == LeaderAndIsr(2, 1, (2,), controller_epoch=1, partition_epoch=1)


def test_a_new_controller_removes_failed_brokers_from_the_isr_of_live_leaders() -> None:
    """Mostly the previous controller: while it is in the ISR, no produce with acks=all completes."""
    world = World(1, 2, 3, topics={"t": topic((2, 3))})
    world.brokers.pop(3)
    world.feed(Elected(2, 2, world.brokers, world.topics, world.znodes))
    assert world.znodes[T0] == LeaderAndIsr(2, 1, (2,), controller_epoch=2, partition_epoch=1)


def test_a_new_controller_sends_each_broker_its_roles_once() -> None:
    """Those that wait for an election or a smaller set of in-sync replicas get a response when that is written."""
    world = World(1, 2, 3, topics={"t": topic((2, 3), (3, 2), (1, 2), (3,))})
    world.brokers.pop(3)
    actions = world.feed(Elected(2, 2, world.brokers, world.topics, dict(world.znodes)))
    reported = [
        (action.broker_id, updates.topic_partition.partition, updates.state.leader)
        for action in actions
        if isinstance(action, SendLeaderAndIsr)
        for updates in action.partitions
    ]
    assert sorted(reported) == [(1, 2, 1), (2, 0, 2), (2, 1, 2), (2, 2, 1)]


def test_new_leaders_and_shrunk_isrs_after_a_failure_are_written_and_sent_together() -> None:
    world = World(1, 2, 3, topics={"t": topic((2, 3), (3, 2), (1, 2))})
    actions = world.live(1, 3)
    (write,) = (action for action in actions if isinstance(action, WriteStates))
    assert {tp.partition: state.leader for tp, state in write.changed.items()} == {0: 3, 1: 3, 2: 1}
    assert [a.broker_id for a in actions if isinstance(a, SendLeaderAndIsr)] == [1, 3]


def test_the_last_in_sync_replica_stays_in_the_isr_and_leads_again_after_its_return() -> None:
    world = World(1, 2, topics={"t": topic((2,))})
    world.live(1)
    assert world.znodes[T0].leader == NO_LEADER
    assert world.znodes[T0].isr == (2,)
    world.live(1, 2)
    assert world.znodes[T0].leader == 2


def test_a_new_broker_gets_update_metadata_before_leader_and_isr() -> None:
    """Apache Kafka's brokers refuse to follow a leader that is not in their metadata."""
    world = World(1, 2, topics={"t": topic((1, 2))})
    world.live(1)
    actions = world.live(1, 2)
    reported = [a for a in actions if isinstance(a, (SendUpdateMetadata, SendLeaderAndIsr))]
    first_roles = next(i for i, a in enumerate(reported) if isinstance(a, SendLeaderAndIsr))
    received = [a for a in reported[:first_roles] if isinstance(a, SendUpdateMetadata) and 2 in a.broker_ids]
    assert any(T0 in [updates.topic_partition for updates in a.partitions] for a in received)


def test_a_broker_with_a_new_epoch_is_handled_as_failed_and_then_as_new() -> None:
    """Its registration has a new czxid, so its partitions get new elections."""
    world = World(1, 2, topics={"t": topic((2,))})
    world.brokers = {1: world.brokers[1], 2: broker(999)}
    world.feed(BrokersRead(world.brokers))
    assert world.znodes[T0].leader == 2
    assert world.znodes[T0].leader_epoch == 2


def test_deleting_a_topic_sends_update_metadata_and_stop_replica_before_removing_its_znodes() -> None:
    world = World(1, 2, topics={"t": topic((1, 2))})
    actions = world.delete("t")
    kinds = [type(a) for a in actions]
    assert kinds == [SendUpdateMetadata, *[SendStopReplica] * 4, DeleteTopicNodes, EndDeletionWaits]
    metadata = actions[0]
    assert isinstance(metadata, SendUpdateMetadata)
    assert metadata.partitions[0].state.leader == LEADER_DURING_DELETE
    assert world.topics == {}
    assert world.state.topics == {}
    assert not world.state.replica_phases
    assert not world.state.partition_phases


def test_a_topic_is_being_deleted_until_its_znodes_are_deleted() -> None:
    """A topic of the same name that is created before would be refused as existing."""
    world = World(1, topics={"t": topic((1,))})
    step(world.state, DeletionsRead(frozenset({"t"})), 0)
    response = StopReplicaResponseReceived(1, {T0: ErrorCode.NONE})
    assert step(world.state, response, 0) == [DeleteTopicNodes("t")]
    assert "t" in world.state.deleting
    assert step(world.state, TopicNodesDeleted("t"), 0) == [EndDeletionWaits(("t",))]
    assert not world.state.deleting


def test_a_new_broker_is_not_sent_metadata_of_a_topic_that_is_being_deleted() -> None:
    """No later request would tell it that the topic is deleted."""
    world = World(1, topics={"t": topic((1,)), "kept": topic((1,))})
    step(world.state, DeletionsRead(frozenset({"t"})), 0)
    requests = [action for action in world.live(1, 2) if isinstance(action, SendUpdateMetadata)]
    assert {update.topic_partition.topic for request in requests for update in request.partitions} == {"kept"}


def test_a_resigning_controller_ends_the_waits_for_deletions() -> None:
    world = World(1, 2, topics={"t": topic((1, 2))})
    world.live(1)
    world.delete("t")
    assert deletion_obstacle(world.state, "t") == "replicas on brokers that are not available: 2"
    assert step(world.state, Resigned(), 0) == [EndDeletionWaits(("t",))]


def test_a_topic_deletion_waits_for_replicas_on_offline_brokers() -> None:
    world = World(1, 2, topics={"t": topic((1, 2))})
    world.live(1)
    world.delete("t")
    assert "t" in world.topics
    world.live(1, 2)
    assert "t" not in world.topics


def test_a_topic_deletion_continues_when_a_broker_is_back_that_failed_before_it_responded() -> None:
    for epoch in (102, 999):  # It is gone for a while, or restarts so fast that only its epoch changes.
        world = World(1, 2, topics={"t": topic((1, 2))})
        step(world.state, DeletionsRead(frozenset({"t"})), 0)
        world.feed(StopReplicaResponseReceived(1, {T0: ErrorCode.NONE}))
        if epoch == 102:
            world.live(1)
        world.brokers = {1: world.brokers[1], 2: broker(epoch)}
        actions = world.feed(BrokersRead(world.brokers))
        assert SendStopReplica(2, {T0: EPOCH_DURING_DELETE}, is_deleting=True) in actions, epoch
        assert "t" not in world.topics, epoch


def test_a_refused_topic_deletion_is_retried_when_a_broker_registers() -> None:
    world = World(1, 2, topics={"t": topic((1, 2))})
    world.refuses_deletion = {2}
    world.delete("t")
    assert "t" in world.topics
    world.refuses_deletion = set()
    world.live(1, 2, 3)
    assert "t" not in world.topics


def test_a_topic_can_be_created_again_after_its_deletion() -> None:
    world = World(1, topics={"t": topic((1,))})
    world.delete("t")
    world.create("t", topic((1,)))
    assert world.znodes[T0].leader == 1


def test_the_deletion_request_for_an_unknown_topic_is_removed() -> None:
    world = World(1)
    assert world.delete("nothing") == [RejectTopicDeletion("nothing")]


def test_without_delete_topic_enable_deletion_requests_are_removed() -> None:
    world = World(1, topics={"t": topic((1,))})
    world.state.allows_topic_deletion = False
    assert world.delete("t") == [RejectTopicDeletion("t")]


def test_controlled_shutdown_moves_leadership_and_shrinks_the_isr() -> None:
    world = World(1, 2, topics={"t": topic((1, 2)), "u": topic((2, 1)), "alone": topic((1,))})
    world.feed(ControlledShutdownRequested(1))
    assert world.znodes[T0].leader == 2
    assert world.znodes[T0].isr == (2,)
    assert world.znodes[TopicPartition("u", 0)].isr == (2,)
    assert world.znodes[TopicPartition("alone", 0)].leader == 1
    assert led_with_followers(world.state, 1) == []


def test_a_conflicting_write_is_decided_again_on_the_current_state() -> None:
    world = World(1, 2, 3, topics={"t": topic((2, 3))})
    world.brokers.pop(2)
    (write,) = (a for a in step(world.state, BrokersRead(dict(world.brokers)), 0) if isinstance(a, WriteStates))
    current = replace(world.znodes[T0], isr=(2, 3), partition_epoch=5)
    world.znodes[T0] = current
    world.feed(StatesWritten({}, {T0: current}))
    assert write.changed[T0].partition_epoch == 0
    assert world.znodes[T0].leader == 3
    assert world.znodes[T0].partition_epoch == 6


def test_a_failed_broker_leaves_the_isr_despite_a_concurrent_write_of_the_leader() -> None:
    world = World(1, 2, 3, topics={"t": topic((1, 2, 3))})
    world.brokers.pop(2)
    step(world.state, BrokersRead(dict(world.brokers)), 0)
    current = replace(world.znodes[T0], isr=(1, 2), partition_epoch=5)
    world.znodes[T0] = current
    world.feed(StatesWritten({}, {T0: current}))
    assert world.znodes[T0].isr == (1,)


def test_nothing_happens_after_resigning() -> None:
    world = World(1, 2, topics={"t": topic((1, 2))})
    world.feed(Resigned())
    assert world.live(2) == []
    assert world.state.topics == {}


def test_an_unclean_election_happens_only_where_the_topic_allows_it() -> None:
    world = World(1, 2, topics={"t": topic((2, 1))})
    world.live(2)
    assert world.znodes[T0].isr == (2,)
    world.live(1)
    assert world.znodes[T0].leader == NO_LEADER
    world.feed(UncleanTopicsRead(frozenset({"t"})))
    world.live(1, 3)
    assert world.znodes[T0].leader == 1


HISTORY = st.lists(
    st.one_of(
        st.tuples(st.just("live"), st.sets(st.integers(1, 4)).map(lambda s: tuple(sorted(s | {1})))),
        st.tuples(st.just("create"), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.integers(0, 3)),
        st.tuples(st.just("shutdown"), st.integers(2, 4)),
    ),
    max_size=25,
)
SHAPES = [topic((1, 2, 3), (2, 3, 4)), topic((4,)), topic((3, 1)), topic((2, 4), (1,), (3, 4))]


@given(HISTORY)
def test_controller_state_agrees_with_zookeeper_after_random_events(history: list[tuple[str, object]]) -> None:
    """Leaders are live, assigned and in sync; epochs only increase; states are consistent; deleted topics leave
    nothing.
    """
    world = World(1, 2, 3, 4)
    epochs: dict[tuple[str, int], int] = {}
    for kind, value in history:
        if kind == "live":
            assert isinstance(value, tuple)
            world.live(*value)
        elif kind == "shutdown":
            assert isinstance(value, int)
            world.feed(ControlledShutdownRequested(value))
        else:
            assert isinstance(value, int)
            name = f"t{value}"
            if kind == "create" and name not in world.topics:
                world.create(name, SHAPES[value])
                epochs = {k: v for k, v in epochs.items() if k[0] != name}
            elif kind == "delete":
                world.delete(name)
        for tp, leader in world.znodes.items():
            assignment = world.topics[tp.topic].replicas[tp.partition]
            assert leader.isr
            assert set(leader.isr) <= set(assignment)
            assert leader.leader_epoch >= epochs.get(tp, 0)
            epochs[tp] = leader.leader_epoch
            if leader.leader != NO_LEADER:
                assert leader.leader in leader.isr
                if tp.topic not in world.deletions:
                    assert leader.leader in world.brokers
                    assert world.state.phase(tp) is PartitionPhase.ONLINE
        assert world.state.topics.keys() == world.topics.keys()
        assert {tp.topic for tp in world.state.leaders} <= world.topics.keys()
        assert world.state.deleting == world.deletions


def test_a_new_controller_does_not_elect_a_broker_that_re_registered_since() -> None:
    """The broker may have lost acknowledged records in a power failure; the others still have them."""
    world = World(1, 2, 3, topics={"t": topic((1, 2, 3))})
    actions = world.feed(Elected(2, 2, world.brokers, world.topics, dict(world.znodes), returned={T0: frozenset({1})}))
    assert world.znodes[T0].leader == 2
    assert world.znodes[T0].isr == (2, 3)
    reported = [action for action in actions if isinstance(action, SendLeaderAndIsr)]
    assert {state.state.leader for action in reported for state in action.partitions} == {2}


def test_a_restarted_cluster_keeps_its_leaders() -> None:
    world = World(1, 2, topics={"t": topic((1, 2))})
    before = world.znodes[T0]
    world.feed(Elected(2, 2, world.brokers, world.topics, dict(world.znodes), returned={T0: frozenset({1, 2})}))
    after = world.znodes[T0]
    assert (after.leader, after.isr) == (before.leader, before.isr)
    assert after.partition_epoch == before.partition_epoch + 1, "later returns have another epoch"


def test_a_returned_replica_leads_when_no_other_replica_is_live() -> None:
    world = World(1, 2, topics={"t": topic((1, 2))})
    world.brokers = brokers(1)
    world.feed(Elected(2, 2, world.brokers, world.topics, dict(world.znodes), returned={T0: frozenset({1})}))
    assert world.znodes[T0].leader == 1
