"""The order of a rolling restart, its effects, and the commands of its brokers."""

from __future__ import annotations

import pytest

from kctl.admin.cluster.quorum import MetadataQuorum, QuorumReplica, has_returned
from kctl.admin.cluster.rolling_plan import command_for, plan_roll, preferred_elsewhere
from kctl.client.metadata import Broker, ClusterMetadata, Partition, Topic
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.model import ZERO_UUID, TopicPartition
from tests.rows import for_rows


def cluster(controller: int, *partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> ClusterMetadata:
    """Brokers 1, 2 and 3, and a topic whose partitions have this leader, these replicas and these in sync."""
    brokers = {number: Broker(number, f"kafka{number}", 9092) for number in (1, 2, 3)}
    numbered = enumerate(partitions)
    topic = Topic(
        "orders",
        ZERO_UUID,
        False,
        tuple(
            Partition(number, leader, 0, replicas, isr, (), ErrorCode.NONE)
            for number, (leader, replicas, isr) in numbered
        ),
        ErrorCode.NONE,
    )
    return ClusterMetadata("id", controller, brokers, {"orders": topic})


@pytest.mark.parametrize(
    ("controller", "chosen", "order"),
    [
        (1, None, [2, 3, 1]),
        (2, None, [1, 3, 2]),
        (-1, None, [1, 2, 3]),
        (1, [3, 1], [3, 1]),
        (2, [3, 1, 3], [1, 3]),
    ],
)
def test_controller_is_the_last(controller: int, chosen: list[int] | None, order: list[int]) -> None:
    steps = plan_roll(cluster(controller), {}, chosen)
    assert [step.broker.node_id for step in steps] == order
    assert [step.is_controller for step in steps] == [number == controller for number in order]


def quorum(leader: int, *voters: int, away: tuple[int, ...] = ()) -> MetadataQuorum:
    """A quorum whose leader's clock is at 60 s; voters that are away have fetched 30 s ago."""
    replicas = [
        QuorumReplica(
            number,
            None,
            "Leader" if number == leader else "Follower",
            9,
            0,
            30_000 if number in away else 60_000,
            60_000,
            (f"CONTROLLER://[::1]:{9000 + number}",),
        )
        for number in voters
    ]
    return MetadataQuorum(leader, 7, 9, tuple(replicas))


def test_dedicated_controllers_follow_the_brokers_and_the_active_one_is_the_last() -> None:
    """The metadata of a KRaft cluster name any broker as the controller."""
    for voters, leader, order in (
        ((7, 8, 9), 8, [(1, "broker"), (2, "broker"), (3, "broker"), *((n, "controller") for n in (7, 9, 8))]),
        ((1, 2, 3), 2, [(n, "broker,controller") for n in (1, 3, 2)]),
        ((1, 9), 1, [(2, "broker"), (3, "broker"), (9, "controller"), (1, "broker,controller")]),
    ):
        steps = plan_roll(cluster(3), {}, None, quorum(leader, *voters))
        assert [(step.broker.node_id, step.role) for step in steps] == order, voters
        assert [step.broker.node_id for step in steps if step.is_controller] == [leader]
    (step,) = plan_roll(cluster(3), {}, [8], quorum(8, 7, 8, 9))
    assert (step.broker.host, step.broker.port, step.is_broker, step.is_harmless) == ("[::1]", 9008, False, True)
    with pytest.raises(UsageError, match="controller 9: its host is unknown before Kafka"):
        command_for("restart {host}", Broker(9, "", 0))


def test_a_node_is_stopped_only_while_the_others_have_a_majority() -> None:
    for state, node, is_refused in (
        (quorum(1, 1, 2, 3), 1, False),
        (quorum(1, 1, 2, 3, away=(3,)), 2, True),
        (quorum(1, 1, 2, 3, away=(3,)), 3, False),
        (quorum(1, 1, 2, 3, 4, 5, away=(3,)), 2, False),
        (quorum(9, 9), 9, False),
        (quorum(9, 9, 8), 8, True),
        (quorum(1, 1, 2, 3, away=(3,)), 77, False),
    ):
        assert (state.problem_without(node) is not None) is is_refused, (state, node)


def test_a_restarted_voter_is_back_when_it_leads_or_has_caught_up_since() -> None:
    before = quorum(1, 1, 2, 3)
    assert has_returned(before, 1, None)
    assert not has_returned(before, 2, None)
    assert not has_returned(before, 2, (7, 60_000))  # Has not fetched since.
    assert has_returned(before, 2, (7, 59_000))
    assert not has_returned(before, 2, (6, 59_000))  # By the clock of an earlier leader.
    assert not has_returned(before, 5, (7, 59_000))


def test_unknown_broker_is_refused() -> None:
    with pytest.raises(ApiError, match="broker 7 is not alive; the cluster has 1, 2, 3"):
        plan_roll(cluster(1), {}, [1, 7])


def test_effects_of_stopping_a_broker() -> None:
    metadata = cluster(3, (1, (1, 2, 3), (1, 2, 3)), (2, (2, 1), (2, 1)), (1, (1,), (1,)), (2, (2, 3), (2, 3)))
    first, second, third = plan_roll(metadata, {"orders": 2}, None)
    assert (first.leaders, first.replicas, second.leaders, third.leaders) == (2, 3, 2, 0)
    assert first.unavailable == (TopicPartition("orders", 2),)
    assert first.under_min_isr == (TopicPartition("orders", 1),)
    assert second.unavailable == ()
    assert second.under_min_isr == (TopicPartition("orders", 1), TopicPartition("orders", 3))
    assert not first.is_harmless
    assert plan_roll(cluster(1, (1, (1, 2, 3), (1, 2, 3))), {"orders": 2}, [1])[0].is_harmless


def test_leaders_that_a_broker_gets_back() -> None:
    metadata = cluster(3, (2, (1, 2), (1, 2)), (1, (1, 2), (1, 2)), (2, (2, 1), (2, 1)), (2, (1, 2), (2,)))
    assert preferred_elsewhere(metadata, 1) == [TopicPartition("orders", 0)]


def test_command_has_the_values_of_the_broker() -> None:
    broker = Broker(1, "kafka1.example", 9092, "eu-1a")
    template = "ssh -p 22 {host} 'restart {id} {port}' {rack} {id}{id}"
    assert command_for(template, broker) == [
        *("ssh", "-p", "22", "kafka1.example", "restart 1 9092"),
        *("eu-1a", "11"),
    ]
    assert command_for("x {host} {rack}", Broker(1, "::1", 9092)) == ["x", "::1", ""]


@for_rows("host", ["-oProxyCommand=x", "a b", "a;b", "$(x)", "`x`", "a\nb", "a|b", "{id}", "a'b"])
def test_addresses_that_would_change_the_command_are_refused(host: str) -> None:
    with pytest.raises(UsageError, match="must not be part of a command"):
        command_for("ssh {host}", Broker(1, host, 9092))
    with pytest.raises(UsageError, match="must not be part of a command"):
        command_for("ssh {rack}", Broker(1, "kafka1", 9092, host))


@pytest.mark.parametrize("template", ["", "ssh 'host", "ssh {name}", "ssh {}", "ssh {host.name}"])
def test_malformed_templates_are_refused(template: str) -> None:
    with pytest.raises(UsageError, match="--restart-command"):
        command_for(template, Broker(1, "kafka1", 9092))
