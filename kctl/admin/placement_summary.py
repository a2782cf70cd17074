"""Effects of a planned reassignment: load of each broker before and after, traffic across racks, phases.  Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from kctl.admin.placement_state import Placement, PlacementState
from kctl.admin.reassignment_plan import Move
from kctl.admin.reassignment_spec import Assignment


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """The replicas, leaders and bytes of a broker before and after the reassignment; bytes are None if no size is
    known.
    """

    broker: int
    rack: str | None
    is_alive: bool
    bytes_before: int | None
    bytes_after: int | None
    bytes_received: int | None
    replicas_before: int
    replicas_after: int
    leaders_before: int
    """Partitions that prefer this broker as leader."""
    leaders_after: int
    free_bytes: int | None
    """Free space now; None if the broker does not report it."""
    free_bytes_after: int | None

    @property
    def lacks_space(self) -> bool:
        """Whether the new replicas need more than the space that is free now; others are deleted only afterwards."""
        return self.free_bytes is not None and (self.bytes_received or 0) > self.free_bytes


def broker_changes(state: PlacementState, targets: Assignment) -> list[BrokerChange]:
    """The change of each live broker, and of each dead one with replicas, by id."""
    weights = Placement(state).weights
    brokers = sorted({*state.racks, *(broker for replicas in state.replicas.values() for broker in replicas)})
    before = {broker: [0, 0, 0] for broker in brokers}
    after = {broker: [0, 0, 0] for broker in brokers}
    received = dict.fromkeys(brokers, 0)
    for tp, replicas in state.replicas.items():
        target = targets.get(tp, replicas)
        for totals, assigned in ((before, replicas), (after, target)):
            for position, broker in enumerate(assigned):
                totals[broker][0] += weights[tp]
                totals[broker][1] += 1
                totals[broker][2] += position == 0
        for broker in target:
            received[broker] += 0 if broker in replicas else weights[tp]
    return [
        _broker_change(state, broker, before[broker], after[broker], received[broker] if state.has_sizes else None)
        for broker in brokers
    ]


def _broker_change(
    state: PlacementState, broker: int, before: list[int], after: list[int], received: int | None
) -> BrokerChange:
    free = state.free_bytes.get(broker)
    has_sizes = state.has_sizes
    return BrokerChange(
        broker=broker,
        rack=state.racks.get(broker),
        is_alive=broker in state.racks,
        bytes_before=before[0] if has_sizes else None,
        bytes_after=after[0] if has_sizes else None,
        bytes_received=received,
        replicas_before=before[1],
        replicas_after=after[1],
        leaders_before=before[2],
        leaders_after=after[2],
        free_bytes=free,
        free_bytes_after=free - (after[0] - before[0]) if free is not None and has_sizes else None,
    )


def bytes_across_racks(state: PlacementState, moves: Sequence[Move]) -> int:
    """Bytes that leaders send to new replicas in other racks; brokers without a known rack do not count."""
    total = 0
    for move in moves:
        source = state.racks.get(move.leader)
        for broker in move.adding:
            rack = state.racks.get(broker)
            total += (move.size_bytes or 0) if source and rack and source != rack else 0
    return total


def phases_of_at_most(moves: Sequence[Move], partitions_max: int) -> list[list[Move]]:
    """Phases with at most `partitions_max` partitions, in the order of their names."""
    return [list(moves[start : start + partitions_max]) for start in range(0, len(moves), partitions_max)]


def phases_of_equal_size(moves: Sequence[Move], count: int) -> list[list[Move]]:
    """At most `count` phases that copy about the same number of bytes; each in the order of the names."""
    phases: list[list[Move]] = [[] for _ in range(min(count, len(moves)))]
    smallest = [(0, 0, number) for number in range(len(phases))]
    for move in sorted(moves, key=lambda move: (-(move.bytes_to_move or 0), move.tp)):
        size, partitions, number = heapq.heappop(smallest)
        phases[number].append(move)
        heapq.heappush(smallest, (size + (move.bytes_to_move or 0), partitions + 1, number))
    return [sorted(phase, key=lambda move: move.tp) for phase in phases]
