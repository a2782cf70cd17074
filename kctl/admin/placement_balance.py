"""Moves replicas from brokers with much load to brokers with little.  Pure.

Each move brings the two brokers nearer to the mean: both end between their previous loads, so the difference between
the largest and the smallest load never grows, and the sum of the squared loads falls, so the planner ends.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection

from kctl.admin.placement_state import Placement
from kctl.model import TopicPartition

TOLERANCE = 0.05
"""Loads that differ from the mean by less than this share are balanced: smaller differences justify no copying."""

_Held = dict[int, list[tuple[int, TopicPartition]]]
"""The movable replicas on each broker as (negative weight, partition), the largest first."""


def balance_load(
    placement: Placement,
    *,
    givers: Collection[int],
    receivers: Collection[int],
    brokers: Collection[int],
    movable: Collection[TopicPartition],
) -> None:
    """Moves replicas of `movable` from givers to receivers towards the mean load of `brokers`."""
    if not brokers:
        return
    mean = sum(placement.load[broker] for broker in brokers) / len(brokers)
    held: _Held = {broker: [] for broker in {*givers, *receivers}}
    for tp in movable:
        for broker in placement.replicas[tp]:
            if broker in held and placement.weights[tp] > 0:
                held[broker].append((-placement.weights[tp], tp))
    for replicas in held.values():
        replicas.sort()
    while (move := _next_move(placement, held, givers, receivers, mean)) is not None:
        tp, giver, receiver = move
        placement.replace(tp, giver, receiver)
        entry = (-placement.weights[tp], tp)
        del held[giver][bisect_left(held[giver], entry)]
        insort(held[receiver], entry)


def _next_move(
    placement: Placement, held: _Held, givers: Collection[int], receivers: Collection[int], mean: float
) -> tuple[TopicPartition, int, int] | None:
    """The next (partition, giver, receiver), from the largest load to the smallest if possible."""
    load = placement.load
    empty_first = sorted(receivers, key=lambda broker: (load[broker], broker))
    for giver in sorted(givers, key=lambda broker: (-load[broker], broker)):
        excess = load[giver] - mean
        if excess <= 0:
            break
        for receiver in empty_first:
            deficit = mean - load[receiver]
            if deficit <= 0:
                break
            if max(excess, deficit) <= mean * TOLERANCE:
                break
            tp = _choose(placement, held[giver], giver, receiver, excess, deficit)
            if tp is not None:
                return tp, giver, receiver
    return None


def _choose(
    placement: Placement,
    replicas: list[tuple[int, TopicPartition]],
    giver: int,
    receiver: int,
    excess: float,
    deficit: float,
) -> TopicPartition | None:
    """The largest replica with which neither broker crosses the mean, else the smallest that is worth its copy."""
    wanted = min(excess, deficit)
    crossing = None
    for negative, tp in replicas:
        weight = -negative
        nearer = excess + deficit - abs(excess - weight) - abs(deficit - weight)
        # A move that crosses no mean brings the loads nearer by twice its weight; half of that is the least.
        if nearer < weight or not _is_allowed(placement, tp, giver, receiver):
            continue
        if weight <= wanted:
            return tp
        crossing = tp
    return crossing


def _is_allowed(placement: Placement, tp: TopicPartition, giver: int, receiver: int) -> bool:
    """Whether the receiver has no replica of the partition, has space, and the replicas stay in as many racks."""
    now = placement.replicas[tp]
    if receiver in now or not placement.fits(tp, receiver):
        return False
    after = [receiver if broker == giver else broker for broker in now]
    return placement.state.rack_count(after) >= placement.state.rack_count(now)
