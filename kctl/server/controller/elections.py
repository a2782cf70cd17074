"""The four ways in which the controller elects a partition leader.  Kafka: PartitionLeaderElectionAlgorithms.

All go through the assignment in order, so the preferred (first) replica wins when it is eligible.  Each returns the new
leader and in-sync replicas, or None when no replica is eligible.  Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


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
            return Elected(replica, tuple(r for r in isr if r in live))
    if allows_unclean:
        for replica in assignment:
            if replica in live:
                return Elected(replica, (replica,), is_unclean=True)
    return None


def reassign(target: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Elected | None:
    """For a completed reassignment: the first of the target replicas that is live and in sync."""
    return next((Elected(r, tuple(isr)) for r in target if r in live and r in isr), None)


def preferred(assignment: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Elected | None:
    """The first replica of the assignment, if it is live and in sync."""
    return Elected(assignment[0], tuple(isr)) if assignment and assignment[0] in live and assignment[0] in isr else None


def controlled_shutdown(
    assignment: Sequence[int], isr: Sequence[int], live: Collection[int], shutting_down: Collection[int]
) -> Elected | None:
    """For a leader that shuts down: the first live in-sync replica that stays; the ones shutting down leave the ISR."""
    staying = tuple(r for r in isr if r not in shutting_down)
    return next((Elected(r, staying) for r in assignment if r in live and r in staying), None)
