"""Reads from a cluster what planners need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kctl.admin.health import ongoing_if_supported
from kctl.admin.log_dirs import ReplicaSizes, replica_sizes
from kctl.admin.placement_state import PlacementState
from kctl.admin.reassignment import Ongoing
from kctl.client.cluster import ClusterClient
from kctl.client.metadata import ClusterMetadata
from kctl.model import TopicPartition


@dataclass(frozen=True, slots=True)
class PlacementReading:
    """The state of all partitions, and what it was derived from."""

    state: PlacementState
    metadata: ClusterMetadata
    sizes: ReplicaSizes
    ongoing: Mapping[TopicPartition, Ongoing]


async def read_placement(client: ClusterClient) -> PlacementReading:
    """Reads the replicas, sizes and free space of a cluster.  Raises ApiError."""
    ongoing = await ongoing_if_supported(client)
    metadata = await client.metadata()
    sizes = await replica_sizes(client, metadata.brokers, None)
    return PlacementReading(placement_state(metadata, sizes), metadata, sizes, ongoing)


def placement_state(metadata: ClusterMetadata, sizes: ReplicaSizes) -> PlacementState:
    """The state of all partitions; the size of a partition is that of its leader, else of any replica."""
    found = {
        TopicPartition(topic.name, one.partition): one
        for topic in metadata.topics.values()
        for one in topic.partitions
        if one.replicas  # A broker that has not received the topic yet may report none.
    }
    known: dict[TopicPartition, int] = {}
    for tp, one in found.items():
        reported = (sizes.of(broker, tp) for broker in (one.leader, *one.replicas))
        size = next((size for size in reported if size is not None), None)
        if size is not None:
            known[tp] = size
    return PlacementState(
        racks={broker.node_id: broker.rack for broker in metadata.brokers.values()},
        replicas={tp: one.replicas for tp, one in found.items()},
        sizes=known,
        free_bytes=sizes.usable_bytes,
        in_sync={tp: one.isr for tp, one in found.items()},
        leaders={tp: one.leader for tp, one in found.items()},
    )
