"""Changes, cost and progress of a reassignment."""

from __future__ import annotations

from kctl.admin.placement.log_dirs import ReplicaSizes
from kctl.admin.placement.plan import Move, MoveState, bytes_by_broker, bytes_moved, move_state, plan_moves, rollback
from kctl.admin.placement.reassignment import Ongoing
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from tests.unit.admin.clusters import cluster, partition

TP = TopicPartition("orders", 0)


def plan_one(target: tuple[int, ...], *, ongoing: Ongoing | None = None, sizes: dict[int, int] | None = None) -> Move:
    """The move of a partition on brokers 0 and 1, or as in `ongoing`."""
    now = cluster(partition(0, ongoing.replicas if ongoing else (0, 1), leader=0))
    known = ReplicaSizes({(broker, TP): size for broker, size in (sizes or {}).items()})
    (move,) = plan_moves({TP: target}, now, {TP: ongoing} if ongoing else {}, known)
    return move


def test_move_adds_and_removes_and_copies_what_it_adds() -> None:
    move = plan_one((1, 2), sizes={0: 100, 1: 90})
    assert (move.adding, move.removing, move.bytes_to_move) == ((2,), (0,), 100)
    assert (move.leader, move.leader_after) == (0, 1)
    assert move.is_change


def test_leader_in_the_new_assignment_stays_leader() -> None:
    assert plan_one((2, 0)).leader_after == 0


def test_reordering_replicas_is_a_change_without_copying() -> None:
    move = plan_one((1, 0))
    assert (move.is_change, move.bytes_to_move) == (True, 0)
    assert not plan_one((0, 1)).is_change


def test_unknown_size_is_not_zero() -> None:
    assert plan_one((1, 2)).bytes_to_move is None


def test_running_move_is_planned_from_the_replicas_before_it() -> None:
    move = plan_one((1, 2), ongoing=Ongoing((1, 2, 0), adding=(2,), removing=(0,)), sizes={0: 100, 2: 30})
    assert (move.current, move.adding, move.removing) == ((1, 0), (2,), (0,))
    assert move.is_under_way
    assert bytes_moved(move, ReplicaSizes({(2, TP): 30})) == 30
    assert bytes_moved(move, ReplicaSizes({(2, TP): 130})) == 100


def test_changed_target_of_a_running_move_is_another_move() -> None:
    move = plan_one((0, 2), ongoing=Ongoing((1, 2, 0), adding=(2,), removing=(0,)))
    assert not move.is_under_way
    assert move.is_change


def test_problems_are_named() -> None:
    moves = plan_moves(
        {TP: (0, 9), TopicPartition("orders", 7): (0,), TopicPartition("nope", 0): (0,)},
        cluster(partition(0, (0, 1))),
        {},
        ReplicaSizes({}),
    )
    problems = {str(move.tp): move.problem for move in moves}
    assert problems["orders-0"] is not None
    assert (problems["orders-0"].error, problems["orders-0"].message) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "broker 9 is not alive",
    )
    assert [problem.error for problem in problems.values() if problem] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_offline_broker_may_be_removed_and_may_stay() -> None:
    now = cluster(partition(0, (0, 9), isr=(0,)))
    moves = plan_moves({TP: (0, 1)}, now, {}, ReplicaSizes({}))
    assert [move.problem for move in moves + plan_moves({TP: (9, 0)}, now, {}, ReplicaSizes({}))] == [None, None]


def test_state_of_a_move_compares_replicas_with_the_target() -> None:
    now = cluster(partition(0, (0, 1)))
    assert move_state(TP, (2,), now, ongoing=True) is MoveState.IN_PROGRESS
    assert move_state(TP, (0, 1), now, ongoing=False) is MoveState.COMPLETE
    assert move_state(TP, (1, 0), now, ongoing=False) is MoveState.DIFFERENT
    assert move_state(TopicPartition("orders", 7), (0,), now, ongoing=False) is MoveState.UNKNOWN


def test_load_is_counted_at_source_and_target_brokers() -> None:
    moves = [
        Move(TP, target=(1, 2), current=(0,), leader=0, size_bytes=10),
        Move(TopicPartition("orders", 1), target=(2,), current=(0,), leader=0, size_bytes=5),
    ]
    assert bytes_by_broker(moves) == ({1: 10, 2: 15}, {0: 25})


def test_rollback_restores_the_previous_assignment() -> None:
    assert rollback([plan_one((1, 2))]) == {TP: (0, 1)}
