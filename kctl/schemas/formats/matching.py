"""Pairs of a bipartite graph.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def largest_matching(edges: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Return as many pairs as possible, each number at most once on either side (augmenting paths)."""
    matched: dict[int, int] = {}
    """The left number by the right one."""

    def augment(left: int, tried: set[int]) -> bool:
        for right in edges[left]:
            if right in tried:
                continue
            tried.add(right)
            if right not in matched or augment(matched[right], tried):
                matched[right] = left
                return True
        return False

    for left in edges:
        augment(left, set())
    return {left: right for right, left in matched.items()}
