"""Builders for cluster metadata."""

from __future__ import annotations

from kctl.client.metadata import Broker, ClusterMetadata, Partition, Topic
from kctl.errors import ErrorCode
from kctl.model import ZERO_UUID


def partition(
    number: int, replicas: tuple[int, ...], *, isr: tuple[int, ...] | None = None, leader: int | None = None
) -> Partition:
    """All replicas in sync and led by the first, unless given otherwise."""
    in_sync = replicas if isr is None else isr
    return Partition(number, replicas[0] if leader is None else leader, 0, replicas, in_sync, (), ErrorCode.NONE)


def cluster(*partitions: Partition, brokers: tuple[int, ...] = (0, 1, 2), controller: int = 0) -> ClusterMetadata:
    """One topic, `orders`."""
    topic = Topic("orders", ZERO_UUID, False, partitions, ErrorCode.NONE)
    live = {broker_id: Broker(broker_id, "127.0.0.1", 9092 + broker_id) for broker_id in brokers}
    return ClusterMetadata("cluster", controller, live, {"orders": topic})
