"""The controller's decisions, by events in and actions out; and random histories against what must always hold."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kctl.model import LEADER_DURING_DELETE, NO_LEADER, LeaderAndIsr, TopicPartition
from kctl.server.controller.actions import (
    DeleteTopicNodes,
    RejectTopicDeletion,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    WriteStates,
)
from kctl.server.controller.events import (
    BrokersRead,
    ControlledShutdownRequested,
    Elected,
    Resigned,
    StatesWritten,
    TopicsRead,
)
from kctl.server.controller.partition_states import PartitionPhase
from kctl.server.controller.step import led_with_followers, step
from tests.unit.server.controller_world import ID, World, broker, brokers, topic

T0 = TopicPartition("t", 0)


def test_a_new_topic_is_written_before_anybody_is_told() -> None:
    world = World(1, 2)
    actions = world.create("t", topic((2, 1)))
    assert [type(a) for a in actions] == [WriteStates, SendLeaderAndIsr, SendLeaderAndIsr, SendUpdateMetadata]
    assert world.znodes[T0] == LeaderAndIsr(2, 0, (2, 1), controller_epoch=1)
    told = actions[1]
    assert isinstance(told, SendLeaderAndIsr)
    assert told.partitions[0].is_new
    assert told.partitions[0].topic_id == ID


def test_the_first_thing_brokers_hear_of_a_new_controller_is_who_is_alive() -> None:
    world = World(1, topics={"t": topic((1,))})
    first = world.told[0]
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


def test_when_a_leader_dies_the_next_in_sync_replica_leads_in_a_new_epoch() -> None:
    world = World(1, 2, 3, topics={"t": topic((2, 3))})
    world.live(1, 3)
    assert world.znodes[T0] == LeaderAndIsr(3, 1, (3,), controller_epoch=1, partition_epoch=1)


def test_when_a_follower_dies_it_leaves_the_isr_and_the_epoch_goes_up() -> None:
    world = World(1, 2, 3, topics={"t": topic((2, 3))})
    world.live(1, 2)
    assert world.znodes[T0] == LeaderAndIsr(2, 1, (2,), controller_epoch=1, partition_epoch=1)


def test_a_new_controller_takes_the_dead_out_of_the_isr_of_leaders_that_live() -> None:
    """Mostly the old controller: until it is out, nothing with acks=all is answered."""
    world = World(1, 2, 3, topics={"t": topic((2, 3))})
    world.brokers.pop(3)
    world.feed(Elected(2, 2, world.brokers, world.topics, world.znodes))
    assert world.znodes[T0] == LeaderAndIsr(2, 1, (2,), controller_epoch=2, partition_epoch=1)


def test_a_new_controller_tells_each_broker_its_roles_once() -> None:
    """Those that wait for an election or a smaller set of in-sync replicas are told when that is written."""
    world = World(1, 2, 3, topics={"t": topic((2, 3), (3, 2), (1, 2), (3,))})
    world.brokers.pop(3)
    actions = world.feed(Elected(2, 2, world.brokers, world.topics, dict(world.znodes)))
    told = [
        (action.broker_id, news.topic_partition.partition, news.state.leader)
        for action in actions
        if isinstance(action, SendLeaderAndIsr)
        for news in action.partitions
    ]
    assert sorted(told) == [(1, 2, 1), (2, 0, 2), (2, 1, 2), (2, 2, 1)]


def test_new_leaders_and_smaller_isrs_after_a_death_are_written_and_told_together() -> None:
    world = World(1, 2, 3, topics={"t": topic((2, 3), (3, 2), (1, 2))})
    actions = world.live(1, 3)
    (write,) = (action for action in actions if isinstance(action, WriteStates))
    assert {tp.partition: state.leader for tp, state in write.changed.items()} == {0: 3, 1: 3, 2: 1}
    assert [a.broker_id for a in actions if isinstance(a, SendLeaderAndIsr)] == [1, 3]


def test_the_last_in_sync_replica_stays_listed_and_leads_again_when_it_is_back() -> None:
    world = World(1, 2, topics={"t": topic((2,))})
    world.live(1)
    assert world.znodes[T0].leader == NO_LEADER
    assert world.znodes[T0].isr == (2,)
    world.live(1, 2)
    assert world.znodes[T0].leader == 2


def test_a_newcomer_hears_who_leads_before_it_is_told_to_follow() -> None:
    """Apache Kafka's brokers refuse to follow a leader that they do not know to be alive."""
    world = World(1, 2, topics={"t": topic((1, 2))})
    world.live(1)
    actions = world.live(1, 2)
    told = [a for a in actions if isinstance(a, (SendUpdateMetadata, SendLeaderAndIsr))]
    first_roles = next(i for i, a in enumerate(told) if isinstance(a, SendLeaderAndIsr))
    heard = [a for a in told[:first_roles] if isinstance(a, SendUpdateMetadata) and 2 in a.broker_ids]
    assert any(T0 in [news.topic_partition for news in a.partitions] for a in heard)


def test_a_broker_that_restarted_unseen_is_taken_for_dead_and_then_new() -> None:
    """Its registration has a new czxid, so its leaderships are decided afresh."""
    world = World(1, 2, topics={"t": topic((2,))})
    world.brokers = {1: world.brokers[1], 2: broker(999)}
    world.feed(BrokersRead(world.brokers))
    assert world.znodes[T0].leader == 2
    assert world.znodes[T0].leader_epoch == 2


def test_deleting_a_topic_tells_brokers_to_forget_stop_and_delete_in_this_order() -> None:
    world = World(1, 2, topics={"t": topic((1, 2))})
    actions = world.delete("t")
    kinds = [type(a) for a in actions]
    assert kinds == [SendUpdateMetadata, *[SendStopReplica] * 4, DeleteTopicNodes]
    metadata = actions[0]
    assert isinstance(metadata, SendUpdateMetadata)
    assert metadata.partitions[0].state.leader == LEADER_DURING_DELETE
    assert world.topics == {}
    assert world.state.topics == {}
    assert not world.state.replica_phases
    assert not world.state.partition_phases


def test_a_deletion_waits_for_the_replica_whose_broker_is_away() -> None:
    world = World(1, 2, topics={"t": topic((1, 2))})
    world.live(1)
    world.delete("t")
    assert "t" in world.topics
    world.live(1, 2)
    assert "t" not in world.topics


def test_a_deletion_that_a_broker_refused_is_tried_again_when_one_comes() -> None:
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


def test_the_wish_to_delete_an_unknown_topic_is_dropped() -> None:
    world = World(1)
    assert world.delete("nothing") == [RejectTopicDeletion("nothing")]


def test_without_delete_topic_enable_wishes_are_dropped() -> None:
    world = World(1, topics={"t": topic((1,))})
    world.state.allows_topic_deletion = False
    assert world.delete("t") == [RejectTopicDeletion("t")]


def test_controlled_shutdown_moves_leadership_and_leaves_the_isr() -> None:
    world = World(1, 2, topics={"t": topic((1, 2)), "u": topic((2, 1)), "alone": topic((1,))})
    world.feed(ControlledShutdownRequested(1))
    assert world.znodes[T0].leader == 2
    assert world.znodes[T0].isr == (2,)
    assert world.znodes[TopicPartition("u", 0)].isr == (2,)
    assert world.znodes[TopicPartition("alone", 0)].leader == 1
    assert led_with_followers(world.state, 1) == []


def test_a_write_that_lost_a_race_is_decided_again_on_what_is_there() -> None:
    world = World(1, 2, 3, topics={"t": topic((2, 3))})
    world.brokers.pop(2)
    (write,) = (a for a in step(world.state, BrokersRead(dict(world.brokers)), 0) if isinstance(a, WriteStates))
    current = replace(world.znodes[T0], isr=(2, 3), partition_epoch=5)
    world.znodes[T0] = current
    world.feed(StatesWritten({}, {T0: current}))
    assert write.changed[T0].partition_epoch == 0
    assert world.znodes[T0].leader == 3
    assert world.znodes[T0].partition_epoch == 6


def test_the_dead_leave_the_isr_although_its_leader_wrote_it_at_the_same_time() -> None:
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
    world.feed(TopicsRead(dict(world.topics), frozenset({"t"})))
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
def test_whatever_happens_the_books_agree(history: list[tuple[str, object]]) -> None:
    """Leaders are live, assigned and in sync; epochs only grow; phases match; nothing of a deleted topic is left."""
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


def test_a_new_controller_does_not_let_a_broker_lead_that_came_back_since() -> None:
    """It may have lost power, and with it what was acknowledged; the others are sure to have it."""
    world = World(1, 2, 3, topics={"t": topic((1, 2, 3))})
    actions = world.feed(Elected(2, 2, world.brokers, world.topics, dict(world.znodes), returned={T0: frozenset({1})}))
    assert world.znodes[T0].leader == 2
    assert world.znodes[T0].isr == (2, 3)
    told = [action for action in actions if isinstance(action, SendLeaderAndIsr)]
    assert {state.state.leader for action in told for state in action.partitions} == {2}


def test_a_cluster_that_came_back_as_a_whole_is_led_as_before() -> None:
    world = World(1, 2, topics={"t": topic((1, 2))})
    before = world.znodes[T0]
    world.feed(Elected(2, 2, world.brokers, world.topics, dict(world.znodes), returned={T0: frozenset({1, 2})}))
    after = world.znodes[T0]
    assert (after.leader, after.isr) == (before.leader, before.isr)
    assert after.partition_epoch == before.partition_epoch + 1, "who returns later is told apart from these"


def test_a_returned_replica_leads_when_nobody_else_is_left() -> None:
    world = World(1, 2, topics={"t": topic((1, 2))})
    world.brokers = brokers(1)
    world.feed(Elected(2, 2, world.brokers, world.topics, dict(world.znodes), returned={T0: frozenset({1})}))
    assert world.znodes[T0].leader == 1
