"""Where the replicas of a cluster are, how large they are, and what a planner has changed so far.  Pure."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kctl.admin.placement.documents import Assignment
from kctl.admin.placement.plan import Move
from kctl.model import TopicPartition


@dataclass(frozen=True, slots=True)
class PlacementState:
    """A snapshot of a cluster for planners."""

    racks: Mapping[int, str | None]
    """The live brokers and their racks."""
    replicas: Mapping[TopicPartition, tuple[int, ...]]
    """All partitions, the preferred leader first."""
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Bytes of one replica, for partitions of known size."""
    free_bytes: Mapping[int, int] = field(default_factory=dict)
    """Free space of the brokers that report it (KIP-827), summed over their log directories."""
    in_sync: Mapping[TopicPartition, Collection[int]] = field(default_factory=dict)
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def has_sizes(self) -> bool:
        """Whether plans weigh bytes; without any size, each replica has the weight 1."""
        return any(self.sizes.values())

    @property
    def unknown_sizes(self) -> int:
        """Number of partitions without a known size."""
        return len(self.replicas.keys() - self.sizes.keys())

    def weights(self) -> dict[TopicPartition, int]:
        """Return the weight of one replica of each partition: its bytes, the mean for those of unknown size."""
        if not self.has_sizes:
            return dict.fromkeys(self.replicas, 1)
        mean = sum(self.sizes.values()) // len(self.sizes)
        return {tp: self.sizes.get(tp, mean) for tp in self.replicas}

    def rack_of(self, broker: int) -> object:
        """Return the rack; a broker without a known rack counts as a rack of its own."""
        return self.racks.get(broker) or broker

    def rack_count(self, replicas: Iterable[int]) -> int:
        """Return the number of racks that hold these replicas."""
        return len({self.rack_of(broker) for broker in replicas})


class Placement:
    """The replicas that a planner has assigned so far.  Owner: the planner."""

    def __init__(self, state: PlacementState) -> None:
        self.state = state
        self.weights = state.weights()
        self.replicas = dict(state.replicas)
        self.load = dict.fromkeys(state.racks, 0)
        """The weights of all replicas on each live broker."""
        self.count = dict.fromkeys(state.racks, 0)
        """The number of replicas on each live broker."""
        self.incoming = dict.fromkeys(state.racks, 0)
        """The weights of the replicas that were not on the broker before."""
        for tp, replicas in state.replicas.items():
            for broker in replicas:
                self._account(tp, broker, 1)

    def place(self, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
        """Assign the replicas of a partition."""
        before = self.replicas[tp]
        for broker in before:
            if broker not in replicas:
                self._account(tp, broker, -1)
        for broker in replicas:
            if broker not in before:
                self._account(tp, broker, 1)
        self.replicas[tp] = replicas

    def replace(self, tp: TopicPartition, old: int, new: int) -> None:
        """Move one replica; it keeps its position, so that a preferred leader is replaced by a preferred leader."""
        self.place(tp, tuple(new if broker == old else broker for broker in self.replicas[tp]))

    def fits(self, tp: TopicPartition, broker: int) -> bool:
        """Return whether the broker has space for one more replica; true if its free space is unknown."""
        free = self.state.free_bytes.get(broker)
        if free is None or not self.state.has_sizes or broker in self.state.replicas[tp]:
            return True
        return self.incoming[broker] + self.weights[tp] <= free

    def best_broker(self, tp: TopicPartition, kept: Collection[int], receivers: Iterable[int]) -> int | None:
        """Return the broker for a new replica beside `kept`; None if all receivers have one.

        It has space if any has, is in a rack without replica if any is, and has the smallest load.
        """
        used = {self.state.rack_of(broker) for broker in kept}
        return min(
            (broker for broker in receivers if broker not in kept),
            key=lambda broker: (
                not self.fits(tp, broker),
                self.state.rack_of(broker) in used,
                self.load[broker],
                self.count[broker],
                broker,
            ),
            default=None,
        )

    def changes(self) -> Assignment:
        """Return the new replicas of the partitions that have changed, in the order of their names."""
        return {tp: replicas for tp, replicas in sorted(self.replicas.items()) if replicas != self.state.replicas[tp]}

    def _account(self, tp: TopicPartition, broker: int, sign: int) -> None:
        if broker not in self.load:
            return
        self.load[broker] += sign * self.weights[tp]
        self.count[broker] += sign
        if broker not in self.state.replicas[tp]:
            self.incoming[broker] += sign * self.weights[tp]


# Effects of a planned reassignment: load of each broker before and after, traffic across racks, phases. Pure.


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
    """Return the change of each live broker, and of each dead one with replicas, by id."""
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
    """Return the bytes that leaders send to new replicas in other racks; brokers without a known rack do not count."""
    total = 0
    for move in moves:
        source = state.racks.get(move.leader)
        for broker in move.adding:
            rack = state.racks.get(broker)
            total += (move.size_bytes or 0) if source and rack and source != rack else 0
    return total


def phases_of_at_most(moves: Sequence[Move], partitions_max: int) -> list[list[Move]]:
    """Return the phases with at most `partitions_max` partitions, in the order of their names."""
    return [list(moves[start : start + partitions_max]) for start in range(0, len(moves), partitions_max)]


def phases_of_equal_size(moves: Sequence[Move], count: int) -> list[list[Move]]:
    """Return at most `count` phases that copy about the same number of bytes; each in the order of the names."""
    phases: list[list[Move]] = [[] for _ in range(min(count, len(moves)))]
    smallest = [(0, 0, number) for number in range(len(phases))]
    for move in sorted(moves, key=lambda move: (-(move.bytes_to_move or 0), move.tp)):
        size, partitions, number = heapq.heappop(smallest)
        phases[number].append(move)
        heapq.heappush(smallest, (size + (move.bytes_to_move or 0), partitions + 1, number))
    return [sorted(phase, key=lambda move: move.tp) for phase in phases]
