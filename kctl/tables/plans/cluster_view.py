"""Queries topic ids, offsets and sizes of partitions for planning."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kctl.admin.topics.offsets import Anchor, OffsetRange, OffsetSpec, offset_ranges, resolve
from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.consuming.fetching import FetchedPartition, FetchLimits, fetch_batches
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.consuming.positions import Divergence
from kctl.client.consuming.positions import Position as History
from kctl.client.leaders import Outcomes, on_leaders
from kctl.client.metadata import ClusterMetadata
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.model import TopicPartition
from kctl.protocol.apis.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kctl.records.batch import iterate_batches
from kctl.records.header import CorruptBatch
from kctl.records.old_formats.conversion import without_old_messages
from kctl.tables.exec.reading.histories import find_divergences, history_of
from kctl.tables.plans.density import Sample
from kctl.tables.plans.plan import ClusterView, Isolation, PartitionView, Positions, TopicView, is_same_topic

SAMPLE_LIMITS = FetchLimits(max_wait_ms=0, min_bytes=0, max_bytes=8 << 20, partition_max_bytes=64 << 10)

ISOLATION_LEVELS = {
    Isolation.READ_COMMITTED: IsolationLevel.READ_COMMITTED,
    Isolation.READ_UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
}


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Topics, partitions and offsets from the command line."""

    topics: Sequence[str]
    start: OffsetSpec
    until: OffsetSpec
    isolation: Isolation
    partitions: Sequence[int] | None = None
    """Partition numbers to export of every topic; None means all."""


async def view_cluster(client: ClusterClient, selection: TopicSelection, positions: Positions) -> ClusterView:
    """Return the selected topics as they are in the cluster, compared with the histories of `positions`.

    Raises ApiError for topics that do not exist or partitions without a leader, UsageError for partitions or offsets
    that do not exist, ClusterUnreachable.
    """
    metadata = await client.metadata(selection.topics)
    tps = _partitions(metadata, selection)
    held = await offset_ranges(client, tps)
    stable = held
    if selection.isolation is Isolation.READ_COMMITTED:
        stable = await offset_ranges(client, tps, isolation=IsolationLevel.READ_COMMITTED)
    starts = await resolve(client, held, selection.start)
    untils = await resolve(client, held, selection.until)
    sizes = await _sizes(client, tps)
    # After the offsets: what is planned is in the log that was compared, or the tasks meet another leader epoch.
    divergences = await _divergences(client, _histories(positions, metadata), held)
    topics: dict[str, dict[int, PartitionView]] = {topic: {} for topic in selection.topics}
    for tp in tps:
        topics[tp.topic][tp.partition] = PartitionView(
            log_start=held[tp].start,
            end=min(stable[tp].end, held[tp].end),  # the history has it
            high_watermark=held[tp].end,
            start=_start(held[tp], selection.start, starts[tp]),
            until=untils[tp],
            size_bytes=sizes.get(tp, 0),
            history=history_of(held[tp].end, held[tp].leader_epoch),
            divergence=divergences.get(tp),
        )
    views = {topic: TopicView(metadata.topics[topic].topic_id, views) for topic, views in topics.items()}
    return ClusterView(metadata.cluster_id or "", views)


def _histories(positions: Positions, metadata: ClusterMetadata) -> dict[TopicPartition, History]:
    """Return the histories of the topics that are not created again."""
    return {
        TopicPartition(name, partition): at.history
        for name, topic in positions.topics.items()
        if name in metadata.topics
        and is_same_topic(
            metadata.topics[name].topic_id,
            metadata.cluster_id or "",
            then_topic_id=topic.topic_id,
            then_cluster_id=topic.cluster_id,
        )
        for partition, at in topic.partitions.items()
    }


async def _divergences(
    client: ClusterClient, histories: Mapping[TopicPartition, History], held: Mapping[TopicPartition, OffsetRange]
) -> dict[TopicPartition, Divergence]:
    """Return where the logs in `held` part from the histories.  Raises ApiError."""
    epochs = {tp: range_.leader_epoch for tp, range_ in held.items()}
    found: dict[TopicPartition, Divergence] = {}
    for tp, outcome in (await find_divergences(client, histories, epochs)).items():
        if isinstance(outcome, ApiError):
            raise ApiError(outcome.code, f"{tp}: {outcome}")
        found[tp] = outcome
    return found


def _start(held: OffsetRange, selection: OffsetSpec, offset: int) -> int:
    """Return the start offset.  A number outside of the log is left to planning: most partitions have a position."""
    return offset if selection.anchor is Anchor.ZERO else min(max(offset, held.start), held.end)


def _partitions(metadata: ClusterMetadata, selection: TopicSelection) -> list[TopicPartition]:
    tps = []
    for name in selection.topics:
        topic = metadata.topics.get(name)
        code = topic.error if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None or code is not ErrorCode.NONE:
            is_unknown = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise ApiError(code, f"topic {name} does not exist" if is_unknown else f"topic {name}: {code.description}")
        existing = {partition.partition for partition in topic.partitions}
        missing = sorted(set(selection.partitions or ()) - existing)
        if missing:
            raise UsageError(f"topic {name} has no partition {', '.join(map(str, missing))}")
        tps += [TopicPartition(name, partition) for partition in sorted(selection.partitions or existing)]
    return tps


async def _sizes(client: ClusterClient, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the sizes of the logs on their leaders in bytes, if available; used only to cut ranges."""

    async def send_to(connection: Connection, some: list[TopicPartition]) -> Outcomes[int]:
        return await _request_sizes(connection, some)

    outcomes = await on_leaders(client, tps, send_to)
    return {tp: size for tp, size in outcomes.items() if isinstance(size, int)}


async def take_samples(
    client: ClusterClient, selection: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, tuple[Sample, ...]]:
    """Return samples of the logs at the requested offsets, if available; used only to cut ranges."""
    samples: dict[TopicPartition, list[Sample]] = {}
    for index in range(max(map(len, selection.values()), default=0)):
        offsets = {tp: offsets[index] for tp, offsets in selection.items() if index < len(offsets)}

        async def send_to(
            connection: Connection, some: list[TopicPartition], offsets: Mapping[TopicPartition, int] = offsets
        ) -> Outcomes[Sample | None]:
            fetched = await fetch_batches(connection, {tp: offsets[tp] for tp in some}, limits=SAMPLE_LIMITS)
            return {result.tp: _sample(result, offsets[result.tp]) for result in fetched}

        outcomes = await on_leaders(client, offsets, send_to)
        for tp, outcome in outcomes.items():
            if isinstance(outcome, Sample):
                samples.setdefault(tp, []).append(outcome)
    return {tp: tuple(found) for tp, found in samples.items()}


def _sample(result: FetchedPartition, offset: int) -> Sample | None:
    try:
        batches = list(iterate_batches(without_old_messages(result.records)))
    except CorruptBatch:
        return None
    if not batches:
        return None
    size = sum(batch.size for batch in batches)
    return Sample(offset, batches[0].base_offset, batches[-1].next_offset, size)


async def _request_sizes(connection: Connection, tps: list[TopicPartition]) -> Outcomes[int]:
    topics: dict[str, list[int]] = {}
    for tp in tps:
        topics.setdefault(tp.topic, []).append(tp.partition)
    selection = [DescribableLogDirTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()]
    response = await connection.send(DescribeLogDirsRequest(topics=selection), DescribeLogDirsResponse)
    sizes: Outcomes[int] = dict.fromkeys(tps, 0)
    for directory in response.results:
        for topic in directory.topics:
            for partition in topic.partitions:
                if not partition.is_future_key:
                    sizes[TopicPartition(topic.name, partition.partition_index)] = partition.partition_size
    return sizes
