"""The partitions of a cluster and the lag of its groups, at one time: the input of the metrics of kafka_exporter."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kctl.admin.group_description import OTHER_TYPES
from kctl.admin.group_lag import GroupLag
from kctl.admin.groups import list_groups
from kctl.admin.lag import LagReader
from kctl.admin.lag_facts import LogRange
from kctl.client.cluster import ClusterClient
from kctl.client.list_offsets import EARLIEST, LATEST, list_offsets_at
from kctl.errors import ApiError, ErrorCode
from kctl.model import NO_LEADER, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """One partition; without a leader the offsets are unknown."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log: LogRange | None


@dataclass(frozen=True, slots=True)
class ClusterLag:
    """Brokers by id with their addresses, and what may be read once: partitions by topic, and the partitions."""

    brokers: Mapping[int, str]
    partition_counts: Iterable[tuple[str, int]]
    partitions: Iterable[tuple[TopicPartition, PartitionSummary]]
    groups: Collection[GroupLag]
    failures: int = 0
    """Brokers and groups with an error."""


async def read_cluster_lag(client: ClusterClient, reader: LagReader, now_ms: int) -> ClusterLag:
    """Reads all topics and all groups of consumers.  Raises ClusterUnreachable."""
    metadata = await client.metadata()
    listed, failed = await list_groups(client)
    groups = await reader.read(client, [one.group_id for one in listed if one.type not in OTHER_TYPES], now_ms)
    topics = [topic for topic in metadata.topics.values() if topic.error is ErrorCode.NONE]
    led = [
        TopicPartition(topic.name, one.partition)
        for topic in topics
        for one in topic.partitions
        if one.leader in metadata.brokers
    ]
    ends = await list_offsets_at(client, led, (EARLIEST, LATEST)) if led else {}
    partitions = [
        (
            tp := TopicPartition(topic.name, one.partition),
            PartitionSummary(
                one.leader if one.leader in metadata.brokers else NO_LEADER, one.replicas, one.isr, _log(ends.get(tp))
            ),
        )
        for topic in topics
        for one in topic.partitions
    ]
    return ClusterLag(
        {broker.node_id: broker.address for broker in metadata.brokers.values()},
        [(topic.name, len(topic.partitions)) for topic in topics],
        partitions,
        groups,
        len(failed) + sum(not group.outcome.is_done for group in groups),
    )


def _log(found: object) -> LogRange | None:
    if found is None or isinstance(found, ApiError):
        return None
    assert isinstance(found, tuple)
    start, end = found
    return LogRange(start.offset, end.offset, end.offset)
