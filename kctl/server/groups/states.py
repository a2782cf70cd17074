"""The five states of a group and the table of moves between them; every move a group makes is looked up here."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class GroupState(StrEnum):
    """The value is the text that DescribeGroups and ListGroups answer."""

    EMPTY = "Empty"
    """No members; there may be committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waiting until every member asked to join the next generation."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation is settled; waiting for the leader's assignment."""
    STABLE = "Stable"
    """Every member may have its assignment."""
    DEAD = "Dead"
    """Deleted, expired or moved to another coordinator; nothing leads out."""


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
"""For each state, where a group may come from."""
