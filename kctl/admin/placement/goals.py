"""Plans reassignments that drain brokers, use added brokers, set a replication factor or rebalance.  Pure.

All planners are deterministic and copy as little as possible.  A new replica goes to a broker with enough free space,
in a rack that has no replica of the partition, where such a broker exists; then to the one with the smallest load.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kctl.admin.placement.balance import balance_leaders, balance_load
from kctl.admin.placement.documents import Assignment
from kctl.admin.placement.log_dirs import ReplicaSizes, replica_sizes
from kctl.admin.placement.reassignment import Ongoing, ongoing_if_supported
from kctl.admin.placement.state import Placement, PlacementState
from kctl.client.cluster import ClusterClient
from kctl.client.metadata import ClusterMetadata
from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.output.quantities import counted


def plan_drain(
    state: PlacementState,
    drained: Collection[int],
    movable: Collection[TopicPartition],
    receivers: Collection[int],
) -> Assignment:
    """Move all replicas of the drained brokers, which may be dead, to `receivers`; copy nothing else.

    A new replica takes the position of the old one.  Raises KctlError if a partition has too few receivers.
    """
    placement = Placement(state)
    allowed = sorted(set(receivers) - set(drained))
    for tp in _largest_first(placement, movable):
        for old in state.replicas[tp]:
            if old not in drained:
                continue
            now = placement.replicas[tp]
            kept = [broker for broker in now if broker not in drained]
            new = placement.best_broker(tp, kept, allowed)
            if new is None:
                raise KctlError(
                    f"{tp} cannot leave broker {old}: every broker that may receive it has a replica already; "
                    "allow more brokers, or reduce its replication factor first ('kctl topics set-replication')"
                )
            placement.replace(tp, old, new)
    return placement.changes()


def plan_add(
    state: PlacementState, added: Collection[int], movable: Collection[TopicPartition], brokers: Collection[int]
) -> Assignment:
    """Move replicas to the added brokers until their load is the mean of `brokers`; other brokers receive nothing.

    The order of replicas changes only in the partitions that are moved.
    """
    placement = Placement(state)
    balance_load(placement, givers=set(brokers) - set(added), receivers=added, brokers=brokers, movable=movable)
    balance_leaders(placement, placement.changes().keys(), brokers)
    return placement.changes()


def plan_rebalance(
    state: PlacementState,
    movable: Collection[TopicPartition],
    receivers: Collection[int],
    brokers: Collection[int],
    *,
    leaders_only: bool = False,
) -> Assignment:
    """Balance the load and the preferred leaders of `brokers`; with `leaders_only`, nothing is copied."""
    placement = Placement(state)
    if not leaders_only:
        balance_load(placement, givers=brokers, receivers=receivers, brokers=brokers, movable=movable)
    balance_leaders(placement, movable, brokers)
    return placement.changes()


def plan_replication_factor(
    state: PlacementState, replication_factor: int, movable: Collection[TopicPartition], receivers: Collection[int]
) -> Assignment:
    """Add replicas at the end, or remove replicas: dead ones first, then those not in sync; never the leader.

    Raises KctlError if a partition has too few receivers.
    """
    placement = Placement(state)
    for tp in _largest_first(placement, movable):
        while len(placement.replicas[tp]) > replication_factor:
            surplus = _least_needed(placement, tp)
            placement.place(tp, tuple(broker for broker in placement.replicas[tp] if broker != surplus))
        while len(placement.replicas[tp]) < replication_factor:
            now = placement.replicas[tp]
            new = placement.best_broker(tp, now, receivers)
            if new is None:
                raise KctlError(
                    f"{tp} cannot have {counted(replication_factor, 'replica')}: only "
                    f"{counted(len(now), 'broker')} may hold one"
                )
            placement.place(tp, (*now, new))
    return placement.changes()


def _least_needed(placement: Placement, tp: TopicPartition) -> int:
    """Return the replica to remove next; one of several in the same rack rather than the only one in its rack."""
    state, now = placement.state, placement.replicas[tp]
    in_sync = state.in_sync.get(tp, now)

    def order(broker: int) -> tuple[bool, bool, bool, bool, bool, int, int]:
        others = [other for other in now if other != broker]
        return (
            broker == state.leaders.get(tp, now[0]),
            broker in state.racks,
            broker in in_sync,
            broker == now[0],
            state.rack_count(others) < state.rack_count(now),
            -placement.load.get(broker, 0),
            -now.index(broker),
        )

    return min(now, key=order)


def _largest_first(placement: Placement, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
    return sorted(tps, key=lambda tp: (-placement.weights[tp], tp))


# Reads from a cluster what planners need.


@dataclass(frozen=True, slots=True)
class PlacementReading:
    """The state of all partitions, and what it was derived from."""

    state: PlacementState
    metadata: ClusterMetadata
    sizes: ReplicaSizes
    ongoing: Mapping[TopicPartition, Ongoing]


async def read_placement(client: ClusterClient) -> PlacementReading:
    """Read the replicas, sizes and free space of a cluster.  Raises ApiError."""
    ongoing = await ongoing_if_supported(client)
    metadata = await client.metadata()
    sizes = await replica_sizes(client, metadata.brokers, None)
    return PlacementReading(placement_state(metadata, sizes), metadata, sizes, ongoing)


def placement_state(metadata: ClusterMetadata, sizes: ReplicaSizes) -> PlacementState:
    """Return the state of all partitions; the size of a partition is that of its leader, else of any replica."""
    found = {
        TopicPartition(topic.name, partition.partition): partition
        for topic in metadata.topics.values()
        for partition in topic.partitions
        if partition.replicas  # A broker that has not received the topic yet may report none.
    }
    known: dict[TopicPartition, int] = {}
    for tp, partition in found.items():
        reported = (sizes.of(broker, tp) for broker in (partition.leader, *partition.replicas))
        size = next((size for size in reported if size is not None), None)
        if size is not None:
            known[tp] = size
    return PlacementState(
        racks={broker.node_id: broker.rack for broker in metadata.brokers.values()},
        replicas={tp: partition.replicas for tp, partition in found.items()},
        sizes=known,
        free_bytes=sizes.usable_bytes,
        in_sync={tp: partition.isr for tp, partition in found.items()},
        leaders={tp: partition.leader for tp, partition in found.items()},
    )
