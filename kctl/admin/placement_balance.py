"""Moves replicas from brokers with much load to brokers with little.  Pure.

Each move brings the two brokers nearer to the mean: both end between their previous loads, so the difference between
the largest and the smallest load never grows, and the sum of the squared loads falls, so the planner ends.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection
from itertools import islice

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
    failed: set[tuple[int, int]] = set()
    while True:
        move = _next_move(placement, held, givers, receivers, mean, failed)
        if move is None:
            # Other moves may have made moves possible between pairs that had none: the end is a search of all pairs.
            failed.clear()
            move = _next_move(placement, held, givers, receivers, mean, failed)
        if move is None:
            return
        tp, giver, receiver = move
        placement.replace(tp, giver, receiver)
        entry = (-placement.weights[tp], tp)
        del held[giver][bisect_left(held[giver], entry)]
        insort(held[receiver], entry)


def _next_move(
    placement: Placement,
    held: _Held,
    givers: Collection[int],
    receivers: Collection[int],
    mean: float,
    failed: set[tuple[int, int]],
) -> tuple[TopicPartition, int, int] | None:
    """The next (partition, giver, receiver), from the largest load to the smallest if possible.

    Pairs of giver and receiver without a move are added to `failed`, and those that are there already are not searched.
    """
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
            if (giver, receiver) in failed:
                continue
            tp = _choose(placement, held[giver], giver, receiver, excess, deficit)
            if tp is not None:
                return tp, giver, receiver
            failed.add((giver, receiver))
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
    middle = bisect_left(replicas, -int(wanted), key=lambda entry: entry[0])
    for _, tp in islice(replicas, middle, None):
        if _is_allowed(placement, tp, giver, receiver):
            return tp
    for index in range(middle - 1, -1, -1):
        negative, tp = replicas[index]
        weight = -negative
        if weight > excess + deficit:
            break
        nearer = excess + deficit - abs(excess - weight) - abs(deficit - weight)
        # A move that crosses no mean brings the loads nearer by twice its weight; half of that is the least.
        if nearer >= weight and _is_allowed(placement, tp, giver, receiver):
            return tp
    return None


def _is_allowed(placement: Placement, tp: TopicPartition, giver: int, receiver: int) -> bool:
    """Whether the receiver has no replica of the partition, has space, and the replicas stay in as many racks."""
    now = placement.replicas[tp]
    if receiver in now or not placement.fits(tp, receiver):
        return False
    after = [receiver if broker == giver else broker for broker in now]
    return placement.state.rack_count(after) >= placement.state.rack_count(now)
