"""The five states of a group and the table of valid transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class GroupState(StrEnum):
    """The values are the texts in DescribeGroups and ListGroups responses."""

    EMPTY = "Empty"
    """No members; there may be committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waiting until every member has joined the next generation."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation is complete; waiting for the leader's assignment."""
    STABLE = "Stable"
    """Every member can get its assignment."""
    DEAD = "Dead"
    """Deleted, expired or moved to another coordinator; final."""


_ALIVE = frozenset(GroupState) - {GroupState.DEAD}

PREVIOUS_STATES: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {
            GroupState.EMPTY,
            GroupState.COMPLETING_REBALANCE,
            GroupState.STABLE,
        }
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: _ALIVE,
}
"""For each state, its possible previous states."""
