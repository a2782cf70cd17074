"""Where the replicas of a cluster are, how large they are, and what a planner has changed so far.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kctl.admin.reassignment_spec import Assignment
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
        """The weight of one replica of each partition: its bytes, the mean for those of unknown size."""
        if not self.has_sizes:
            return dict.fromkeys(self.replicas, 1)
        mean = sum(self.sizes.values()) // len(self.sizes)
        return {tp: self.sizes.get(tp, mean) for tp in self.replicas}

    def rack_of(self, broker: int) -> object:
        """The rack; a broker without a known rack counts as a rack of its own."""
        return self.racks.get(broker) or broker

    def rack_count(self, replicas: Iterable[int]) -> int:
        """Number of racks that hold these replicas."""
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
        """Assigns the replicas of a partition."""
        before = self.replicas[tp]
        for broker in before:
            if broker not in replicas:
                self._account(tp, broker, -1)
        for broker in replicas:
            if broker not in before:
                self._account(tp, broker, 1)
        self.replicas[tp] = replicas

    def replace(self, tp: TopicPartition, old: int, new: int) -> None:
        """Moves one replica; it keeps its position, so that a preferred leader is replaced by a preferred leader."""
        self.place(tp, tuple(new if broker == old else broker for broker in self.replicas[tp]))

    def fits(self, tp: TopicPartition, broker: int) -> bool:
        """Whether the broker has space for one more replica; true if its free space is unknown."""
        free = self.state.free_bytes.get(broker)
        if free is None or not self.state.has_sizes or broker in self.state.replicas[tp]:
            return True
        return self.incoming[broker] + self.weights[tp] <= free

    def best_broker(self, tp: TopicPartition, kept: Collection[int], receivers: Iterable[int]) -> int | None:
        """The broker for a new replica beside `kept`; None if all receivers have one.

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
        """The new replicas of the partitions that have changed, in the order of their names."""
        return {tp: replicas for tp, replicas in sorted(self.replicas.items()) if replicas != self.state.replicas[tp]}

    def _account(self, tp: TopicPartition, broker: int, sign: int) -> None:
        if broker not in self.load:
            return
        self.load[broker] += sign * self.weights[tp]
        self.count[broker] += sign
        if broker not in self.state.replicas[tp]:
            self.incoming[broker] += sign * self.weights[tp]
