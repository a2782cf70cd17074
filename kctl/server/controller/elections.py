"""Who leads: the four ways in which the controller picks a leader.  Kafka's PartitionLeaderElectionAlgorithms.

All look at the assignment in its order, so the first replica, the preferred one, wins whenever it may.  Each answers
the new leader and in-sync replicas, or None when nobody can lead.  Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Elected(NamedTuple):
    """The outcome of an election."""

    leader: int
    isr: tuple[int, ...]
    is_unclean: bool = False
    """The leader was not in sync: records that were acknowledged may be gone."""


def offline(
    assignment: Sequence[int], isr: Sequence[int], live: Collection[int], *, allows_unclean: bool
) -> Elected | None:
    """The leader is gone: the first live in-sync replica; failing that, if allowed, any live replica, alone in sync."""
    for replica in assignment:
        if replica in live and replica in isr:
            return Elected(replica, tuple(r for r in isr if r in live))
    if allows_unclean:
        for replica in assignment:
            if replica in live:
                return Elected(replica, (replica,), is_unclean=True)
    return None


def reassign(target: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Elected | None:
    """A reassignment ends: the first of the new replicas that is live and in sync."""
    return next((Elected(r, tuple(isr)) for r in target if r in live and r in isr), None)


def preferred(assignment: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Elected | None:
    """Back to the first replica of the assignment, if it is live and in sync."""
    return Elected(assignment[0], tuple(isr)) if assignment and assignment[0] in live and assignment[0] in isr else None


def controlled_shutdown(
    assignment: Sequence[int], isr: Sequence[int], live: Collection[int], shutting_down: Collection[int]
) -> Elected | None:
    """The leader is about to stop: the first live in-sync replica that stays; who stops leaves the in-sync replicas."""
    staying = tuple(r for r in isr if r not in shutting_down)
    return next((Elected(r, staying) for r in assignment if r in live and r in staying), None)
