"""Balances preferred leaders by changing the order of replicas, without copying.  Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable
from itertools import pairwise

from kctl.admin.placement_state import Placement
from kctl.model import TopicPartition

_Led = dict[int, dict[int, set[TopicPartition]]]
"""By preferred leader, and by another replica on an eligible broker: partitions that could prefer the other."""


def balance_leaders(placement: Placement, movable: Collection[TopicPartition], brokers: Collection[int]) -> None:
    """Makes the numbers of preferred leaders on `brokers` as equal as the replicas of `movable` permit.

    Leadership is passed along the shortest chain of brokers from one with many to one with at least two fewer, until
    there is none, which is an optimal semi-matching (Harvey, Ladner, Lovasz, Tamir, 2006).
    """
    eligible = set(brokers)
    counts = Counter(dict.fromkeys(eligible, 0))
    counts.update(replicas[0] for replicas in placement.replicas.values() if replicas[:1] and replicas[0] in eligible)
    led: _Led = {broker: {} for broker in eligible}
    for tp in movable:
        _enter(led, tp, placement.replicas[tp])
    while (chain := _chain(led, counts)) is not None:
        for old, new in pairwise(chain):
            tp = min(led[old][new])
            _leave(led, tp, placement.replicas[tp])
            placement.place(tp, _swapped(placement.replicas[tp], new))
            _enter(led, tp, placement.replicas[tp])
        counts[chain[0]] -= 1
        counts[chain[-1]] += 1


def _chain(led: _Led, counts: Counter[int]) -> list[int] | None:
    """The shortest chain from a broker with the most leaders to one with at least two fewer."""
    for start in sorted(counts, key=lambda broker: (-counts[broker], broker)):
        previous = {start: start}
        queue = deque([start])
        while queue:
            broker = queue.popleft()
            if counts[broker] <= counts[start] - 2:
                chain = [broker]
                while chain[-1] != start:
                    chain.append(previous[chain[-1]])
                return chain[::-1]
            for other in sorted(led[broker], key=lambda one: (counts[one], one)):
                if other not in previous and led[broker][other]:
                    previous[other] = broker
                    queue.append(other)
    return None


def _enter(led: _Led, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
    for other in _others(led, replicas):
        led[replicas[0]].setdefault(other, set()).add(tp)


def _leave(led: _Led, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
    for other in _others(led, replicas):
        led[replicas[0]][other].remove(tp)


def _others(led: _Led, replicas: tuple[int, ...]) -> Iterable[int]:
    return [one for one in replicas[1:] if one in led] if replicas[0] in led else []


def _swapped(replicas: tuple[int, ...], first: int) -> tuple[int, ...]:
    """`first` and the preferred leader change places."""
    return tuple({replicas[0]: first, first: replicas[0]}.get(broker, broker) for broker in replicas)
