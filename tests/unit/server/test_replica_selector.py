"""The preferred read replica of a consumer."""

from __future__ import annotations

from kctl.server.replication.fetching.replica_selector import ReplicaView, closest_replica

LEADER = ReplicaView(0, "a", 100, 0)


def test_a_consumer_in_the_leaders_rack_reads_from_the_leader() -> None:
    assert closest_replica("a", LEADER, [ReplicaView(1, "a", 100, 0)]) == 0


def test_a_consumer_in_another_rack_reads_from_the_follower_there() -> None:
    assert closest_replica("b", LEADER, [ReplicaView(1, "b", 90, 0), ReplicaView(2, "c", 100, 0)]) == 1


def test_a_consumer_in_a_rack_without_replicas_reads_from_the_leader() -> None:
    assert closest_replica("d", LEADER, [ReplicaView(1, "b", 100, 0), ReplicaView(2, None, 100, 0)]) == 0


def test_a_consumer_without_a_rack_reads_from_the_leader() -> None:
    nameless = ReplicaView(0, "", 100, 0)
    assert closest_replica("", nameless, [ReplicaView(1, "", 200, 0)]) == 0


def test_of_several_near_replicas_the_furthest_then_the_latest_then_the_last_wins() -> None:
    near = [ReplicaView(1, "b", 90, 0), ReplicaView(2, "b", 95, 20), ReplicaView(3, "b", 95, 10)]
    assert closest_replica("b", LEADER, near) == 3
    assert closest_replica("b", LEADER, [*near, ReplicaView(4, "b", 95, 10)]) == 4
