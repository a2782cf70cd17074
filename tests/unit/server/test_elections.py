"""The four elections, in Kafka's cases."""

from __future__ import annotations

from kctl.server.cluster.controller.rules.leadership import Elected, controlled_shutdown, offline, preferred, reassign


def test_offline_prefers_the_order_of_the_assignment_among_live_in_sync_replicas() -> None:
    assert offline([1, 2, 3], [3, 2], {2, 3}, allows_unclean=False) == Elected(2, (3, 2))


def test_offline_shrinks_the_isr_to_live_replicas() -> None:
    assert offline([1, 2, 3], [1, 2, 3], {3}, allows_unclean=False) == Elected(3, (3,))


def test_without_a_live_in_sync_replica_only_an_unclean_election_finds_a_leader() -> None:
    assert offline([1, 2], [1], {2}, allows_unclean=False) is None
    assert offline([1, 2], [1], {2}, allows_unclean=True) == Elected(2, (2,), is_unclean=True)
    assert offline([1, 2], [1], set(), allows_unclean=True) is None


def test_reassign_takes_the_first_target_that_is_live_and_in_sync() -> None:
    assert reassign([4, 5], [5, 1], {4, 5}) == Elected(5, (5, 1))
    assert reassign([4], [1], {4}) is None


def test_preferred_election_takes_the_first_assigned_replica_or_none() -> None:
    assert preferred([1, 2], [2, 1], {1, 2}) == Elected(1, (2, 1))
    assert preferred([1, 2], [2], {1, 2}) is None
    assert preferred([1, 2], [1, 2], {2}) is None


def test_controlled_shutdown_removes_stopping_brokers_from_the_isr() -> None:
    assert controlled_shutdown([1, 2, 3], [1, 2, 3], {1, 2, 3}, {1}) == Elected(2, (2, 3))
    assert controlled_shutdown([1, 2], [1, 2], {1, 2}, {1, 2}) is None
    assert controlled_shutdown([1, 2], [1], {1, 2}, {1}) is None
