"""The offsets of an export: positions after its last commit, the state of the cluster, and the plan of a batch.  Pure.

`kctl.tables.plans.planning` makes a plan of the first two; `advance` returns the positions after its commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import takewhile
from typing import NamedTuple
from uuid import UUID

from kctl.client.consuming.positions import Divergence
from kctl.client.consuming.positions import Position as History
from kctl.model import ZERO_UUID, TopicPartition
from kctl.tables.exec.outcome import Misfit
from kctl.tables.exec.reading.histories import UNKNOWN_HISTORY
from kctl.tables.exec.schema.column_types import BINARY, VARIANT, Columns, Type
from kctl.tables.plans.density import Sample
from kctl.tables.plans.path_set import NO_PATHS, PathSet

REPLACED_RANGES_MAX = 10_000
"""Ranges of one topic that its positions remember."""


class Isolation(StrEnum):
    """Values of the consumer property isolation.level."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class OnDataLoss(StrEnum):
    """The reaction to offsets to export that no longer exist."""

    FAIL = "fail"
    WARN = "warn"


class OnCorruptBatch(StrEnum):
    """The reaction to batches that cannot be read: a wrong checksum, or broken records."""

    FAIL = "fail"
    SKIP = "skip"


class Compression(StrEnum):
    """Codec of the Parquet pages."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Options of the files; part of the plan, so that repeated attempts write equal files."""

    include_headers: bool = False
    compression: Compression = Compression.ZSTD
    isolation: Isolation = Isolation.READ_COMMITTED


class Position(NamedTuple):
    """Position of one partition: the next offset, and its incarnation."""

    offset: int
    incarnation: int
    history: History = UNKNOWN_HISTORY
    """Of the log when the offset was planned: its high watermark is not before the offset."""


class Replaced(NamedTuple):
    """Offsets [start, end) whose rows, of one incarnation, are of records that the topic lost after their export.

    The topic may have other records at these offsets, which are exported in the next incarnation.
    """

    partition: int
    incarnation: int
    start: int
    end: int
    leader_epoch: int
    """Of the leader from whose log they were exported; -1 if unknown."""


@dataclass(frozen=True, slots=True)
class TopicPosition:
    """Positions of one topic."""

    topic_id: UUID
    cluster_id: str
    incarnation: int
    """The highest incarnation of its partitions."""
    partitions: Mapping[int, Position]
    replaced: tuple[Replaced, ...] = ()
    """The last ones, at most REPLACED_RANGES_MAX."""


class HeldColumns(NamedTuple):
    """The types of keys and values in the files of a topic."""

    key: Type = BINARY
    value: Type = BINARY


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions of a folder, from its last commit."""

    last_batch: int = -1
    topics: Mapping[str, TopicPosition] = field(default_factory=dict)
    include_headers: bool | None = None
    """Whether the folder's files have the headers column; None without files."""
    files: PathSet | None = NO_PATHS
    """The data files of all commits; None if the last commit has version 1, which lacks them."""
    sizes: PathSet | None = NO_PATHS
    """These with their sizes (`sized`); None if the last commit was written by a version that lacks them."""
    columns: Mapping[str, HeldColumns] = field(default_factory=dict)
    """The columns of each topic."""
    dead_letters: PathSet | None = NO_PATHS
    """The files with dead letters of all commits; None if the last commit was written by a version that lacks them."""
    dead_letter_sizes: PathSet | None = NO_PATHS
    """These with their sizes; None as above."""
    misfits: Mapping[str, tuple[Misfit, ...]] = field(default_factory=dict)
    """The values of all batches that are not in their column, by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """State of one partition at planning."""

    log_start: int
    end: int
    """The last stable offset or the high watermark, by isolation."""
    high_watermark: int
    start: int
    """The offset of --from; it may be beyond the end."""
    until: int
    """The offset of --until."""
    size_bytes: int = 0
    """Size of the whole log on its leader; 0 when unknown."""
    samples: tuple[Sample, ...] = ()
    """Density samples in the order of offsets; without samples all offsets have equal weight."""
    history: History = UNKNOWN_HISTORY
    """The same high watermark, and the leader epoch."""
    divergence: Divergence | None = None
    """Where the log differs from the one that was exported."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """State of one topic at planning, with the selected partitions only."""

    topic_id: UUID
    partitions: Mapping[int, PartitionView]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """State of the cluster at planning."""

    cluster_id: str
    topics: Mapping[str, TopicView]


@dataclass(frozen=True, slots=True)
class FileRange:
    """Offsets [start, end) and their file, which other partitions of the topic may share."""

    start: int
    end: int
    path: str


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The share of one partition in a batch: offsets [start, end), cut into files without gap or overlap.

    No files and start == end: the batch only records where the partition starts (--from latest).
    """

    tp: TopicPartition
    start: int
    end: int
    incarnation: int
    files: tuple[FileRange, ...]
    lost: int = 0
    """Missing offsets before `start`."""
    history: History = UNKNOWN_HISTORY
    """Of the log at planning; see Position."""
    replaced: Replaced | None = None
    """Rows of the incarnation before, which the topic lost."""


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """Identity of a topic at planning, and how its records are decoded."""

    topic_id: UUID
    incarnation: int
    columns: Columns = field(default_factory=Columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One batch: all inputs of its tasks, equal in every attempt."""

    batch: int
    created_ms: int
    cluster_id: str
    options: FileOptions
    topics: Mapping[str, PlannedTopic]
    ranges: tuple[PartitionRange, ...]

    @property
    def offset_count(self) -> int:
        """Number of offsets; there may be fewer records (markers, aborted, compacted)."""
        return sum(range_.end - range_.start for range_ in self.ranges)

    @property
    def file_count(self) -> int:
        """Maximum number of files: one without records is not written."""
        return len(self.shares())

    @property
    def is_typed(self) -> bool:
        """Whether keys or values of any topic are decoded."""
        return any(topic.columns.are_typed for topic in self.topics.values())

    @property
    def has_variants(self) -> bool:
        """Whether keys or values of any topic are variants."""
        return any(VARIANT in (topic.columns.key.type, topic.columns.value.type) for topic in self.topics.values())

    def of_topics(self, topics: Collection[str]) -> Plan:
        """Return the part of the plan for some of its topics."""
        return replace(
            self,
            topics={topic: planned for topic, planned in self.topics.items() if topic in topics},
            ranges=tuple(range_ for range_ in self.ranges if range_.tp.topic in topics),
        )

    def with_columns(self, columns: Mapping[str, Columns]) -> Plan:
        """Return the plan with decodings of all its topics."""
        return replace(
            self, topics={topic: replace(planned, columns=columns[topic]) for topic, planned in self.topics.items()}
        )

    def with_paths(self, path_of: Callable[[str, str], str]) -> Plan:
        """Return the plan with other paths of files, as functions of topic and path."""
        return replace(
            self,
            ranges=tuple(
                replace(
                    range_,
                    files=tuple(replace(file, path=path_of(range_.tp.topic, file.path)) for file in range_.files),
                )
                for range_ in self.ranges
            ),
        )

    def without_files(self, paths: Collection[str]) -> Plan:
        """Return the part of the plan up to the first of these files in each partition."""
        ranges = []
        for range_ in self.ranges:
            files = tuple(takewhile(lambda file: file.path not in paths, range_.files))
            if len(files) == len(range_.files):
                ranges.append(range_)
            elif files:
                ranges.append(replace(range_, end=files[-1].end, files=files))
        topics = {range_.tp.topic for range_ in ranges}
        return replace(
            self,
            ranges=tuple(ranges),
            topics={topic: planned for topic, planned in self.topics.items() if topic in topics},
        )

    def shares(self) -> dict[str, list[tuple[PartitionRange, FileRange]]]:
        """Return the ranges of every file, by path and in order."""
        shares: dict[str, list[tuple[PartitionRange, FileRange]]] = {}
        for range_ in self.ranges:
            for file in range_.files:
                shares.setdefault(file.path, []).append((range_, file))
        return shares


def is_same_topic(topic_id: UUID, cluster_id: str, *, then_topic_id: UUID, then_cluster_id: str) -> bool:
    """Return whether this is still the same topic: by topic id, or by cluster id if a broker has no topic ids."""
    if ZERO_UUID in {topic_id, then_topic_id}:
        return cluster_id == then_cluster_id
    return topic_id == then_topic_id


def advance(
    positions: Positions,
    plan: Plan,
    files: PathSet | None = None,
    dead_letters: PathSet | None = None,
    sizes: PathSet | None = None,
    dead_letter_sizes: PathSet | None = None,
    misfits: Mapping[str, tuple[Misfit, ...]] | None = None,
) -> Positions:
    """Return the positions after the commit of `plan`; the sets and misfits are those of all commits.

    Without misfits, the batch has none.
    """
    topics = dict(positions.topics)
    for topic, planned in plan.topics.items():
        partitions = kept_positions(topics.get(topic), planned.topic_id, plan.cluster_id)
        replaced = kept_replaced(topics.get(topic), planned.topic_id, plan.cluster_id)
        for range_ in plan.ranges:
            if range_.tp.topic == topic:
                partitions[range_.tp.partition] = Position(range_.end, range_.incarnation, range_.history)
                replaced += (range_.replaced,) if range_.replaced else ()
        topics[topic] = TopicPosition(
            planned.topic_id, plan.cluster_id, planned.incarnation, partitions, replaced[-REPLACED_RANGES_MAX:]
        )
    held = {
        topic: HeldColumns(planned.columns.key.type, planned.columns.value.type)
        for topic, planned in plan.topics.items()
    }
    return Positions(
        last_batch=plan.batch,
        topics=topics,
        include_headers=plan.options.include_headers,
        files=files,
        sizes=sizes,
        columns={**positions.columns, **held},
        dead_letters=dead_letters,
        dead_letter_sizes=dead_letter_sizes,
        misfits=positions.misfits if misfits is None else misfits,
    )


def continues(positions: Positions, plan: Plan) -> bool:
    """Return whether each range of a plan begins where the range of the same incarnation before it ends."""
    for range_ in plan.ranges:
        before = positions.topics.get(range_.tp.topic)
        at = before.partitions.get(range_.tp.partition) if before else None
        if at is not None and at.incarnation == range_.incarnation and at.offset != range_.start - range_.lost:
            return False
    return True


def without_partitions(view: ClusterView, tps: Collection[TopicPartition]) -> ClusterView:
    """Return the view without some partitions."""
    topics = {
        topic: replace(
            topic_view,
            partitions={
                number: there
                for number, there in topic_view.partitions.items()
                if TopicPartition(topic, number) not in tps
            },
        )
        for topic, topic_view in view.topics.items()
    }
    return ClusterView(view.cluster_id, topics)


def with_samples(view: ClusterView, samples: Mapping[TopicPartition, tuple[Sample, ...]]) -> ClusterView:
    """Return the view with samples of some of its partitions."""
    topics = {
        topic: TopicView(
            topic_view.topic_id,
            {
                partition: replace(there, samples=samples.get(TopicPartition(topic, partition), ()))
                for partition, there in topic_view.partitions.items()
            },
        )
        for topic, topic_view in view.topics.items()
    }
    return ClusterView(view.cluster_id, topics)


def kept_positions(before: TopicPosition | None, topic_id: UUID, cluster_id: str) -> dict[int, Position]:
    """Return the positions of a topic by partition; none if it was deleted and created again."""
    if before is None:
        return {}
    same = is_same_topic(topic_id, cluster_id, then_topic_id=before.topic_id, then_cluster_id=before.cluster_id)
    return dict(before.partitions) if same else {}


def kept_replaced(before: TopicPosition | None, topic_id: UUID, cluster_id: str) -> tuple[Replaced, ...]:
    """Return the lost rows that a topic remembers; none if it was deleted and created again."""
    return before.replaced if before is not None and kept_positions(before, topic_id, cluster_id) else ()
