"""Copies the topics of a cluster to another one, in rounds, each record once.

A round reads what the source has when it begins, at most ROUND_OFFSETS of each partition.  One transactional id in the
target writes all records, and commits the progress with them: a process that is killed loses nothing and repeats
nothing, and a second process with the same id fences the first, which then stops.  The progress is kept in a group of
the target (kctl.admin.copy.kept_progress), with the stretches by which offsets of groups are translated.

Topics that cannot be copied are left out with the reason; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from time import time_ns
from typing import NamedTuple
from uuid import UUID

from kctl.admin.copy.copying import Copier, CopyPlan
from kctl.admin.copy.kept_progress import (
    PartitionFacts,
    ProgressMark,
    committed_position,
    distrusted,
    find_divergences,
    parse_mark,
    parse_offset_map,
)
from kctl.admin.copy.stretches import OffsetMap
from kctl.admin.records.selection import RecordFilter
from kctl.admin.topics.offsets import OffsetRange, offset_ranges
from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.consuming.committed_offsets import STABLE_VERSION_MIN, CommittedOffset, fetch_commits
from kctl.client.consuming.fetching.batches import CHUNKS, FetchLimits
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.consuming.positions import NO_EPOCH, Position
from kctl.client.metadata import ClusterMetadata, Topic
from kctl.client.producing.producer import ProducerSettings
from kctl.client.producing.transaction import EPOCH_VERSION_MIN, FENCED, TRANSACTION_TIMEOUT_MS, Transaction
from kctl.errors import ApiError, ErrorCode, KctlError
from kctl.limits import Subject, bound
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest
from kctl.system.reference_cycles import copy_of

ROUND_OFFSETS = bound(
    Subject.COMMANDS,
    "offsets of one partition that kctl migrate copies between two looks at topics, groups and settings",
    200_000,
    "offsets",
    on_excess="the next round copies the rest",
)
HEARTBEAT_MS = 10_000
"""How often the time of the progress is renewed when there is nothing to copy."""
REFRESH_MS = 6 * 3_600_000
"""How often all progress is committed again: commits of a group without members expire (offsets.retention.minutes)."""
CUT_OVER = "cut over"
"""The phase after the cut over: the target has records of its own, which a copy from the source would precede."""

_UNSTABLE = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT})


class Superseded(KctlError):
    """Another process has begun to copy with the same transactional id."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            f"another 'kctl migrate' copies the same clusters since (transactional id '{transactional_id}'): this one "
            "has stopped, and has left nothing incomplete"
        )


class Names(NamedTuple):
    """The names in the target by which a copy is continued."""

    group: str
    transactional_id: str

    @classmethod
    def of(cls, source_cluster: str, *, is_back: bool = False) -> Names:
        """Return the names for copies from this cluster."""
        name = f"kctl-migrate-{'back-' if is_back else ''}{source_cluster}"
        return cls(name, name)


@dataclass(slots=True)
class MirroredPartition:
    """A partition that is copied."""

    position: Position
    """Everything before it is in the target."""
    offset_map: OffsetMap
    range: OffsetRange
    """Of the source."""
    stable_end: int
    """Before the first open transaction: consumers that read committed records get no further."""
    is_committed: bool = False
    deleted: int = 0
    """Offsets that the source deleted before they were copied."""

    @property
    def lag(self) -> int:
        """Offsets that are left to copy, with those of open transactions."""
        return max(0, self.range.end - self.position.offset)

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return self.stable_end < self.range.end


async def read_commits(client: ClusterClient, group: str) -> dict[TopicPartition, CommittedOffset]:
    """Return all commits of a group.  Raises ApiError and ClusterUnreachable."""

    async def look_up(connection: Connection) -> dict[TopicPartition, CommittedOffset]:
        is_stable = connection.versions.highest(OffsetFetchRequest) >= STABLE_VERSION_MIN
        topics = (await fetch_commits(connection, {group: None}, require_stable=is_stable)).get(group, [])
        if isinstance(topics, ApiError):
            raise copy_of(topics)
        commits = {}
        for topic in topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                if partition.error_code:
                    raise ApiError(ErrorCode.of(partition.error_code), f"group '{group}', {tp}")
                if partition.committed_offset >= 0:
                    commits[tp] = CommittedOffset(
                        partition.committed_offset, partition.committed_leader_epoch, partition.metadata or ""
                    )
        return commits

    return await client.on_coordinator(group, look_up, codes=_UNSTABLE)


def phase_in(commits: Mapping[TopicPartition, CommittedOffset]) -> str:
    """Return the phase that any commit of the progress has."""
    marks = (parse_mark(commit.metadata) for commit in commits.values())
    return next((mark.phase for mark in marks if mark is not None and mark.phase), "")


def synced_ms(commits: Mapping[TopicPartition, CommittedOffset]) -> int:
    """Return when the source was last read; 0 if never."""
    marks = (parse_mark(commit.metadata) for commit in commits.values())
    return max((mark.time_ms for mark in marks if mark is not None), default=0)


@dataclass(slots=True)
class Mirror:
    """The copy of the selected topics of a cluster.  Owner: event loop."""

    source: ClusterClient
    target: ClusterClient
    names: Names
    selects: Callable[[str], bool]
    settings: ProducerSettings = field(default_factory=ProducerSettings)
    limits: FetchLimits = CHUNKS
    clock_ms: Callable[[], int] = lambda: time_ns() // 1_000_000
    partitions: dict[TopicPartition, MirroredPartition] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    """Why a topic is not copied."""
    copied: int = 0
    """Records that were copied so far."""
    _topic_ids: dict[str, tuple[UUID, UUID]] = field(default_factory=dict)
    _marks: dict[str, ProgressMark] = field(default_factory=dict)
    _distrusted: dict[str, str] = field(default_factory=dict)
    _offset_maps: dict[TopicPartition, OffsetMap] = field(default_factory=dict)
    _copier: Copier | None = None
    _producer: ProducerIdAndEpoch | None = None
    _committed_ms: int = 0
    _refreshed_ms: int = 0

    async def round(self, *, looks: bool = True) -> int:
        """Copy what the source has now; return the number of records.  Raises KctlError.

        With `looks` topics that are new are copied too.  After an error the next round begins with a new transaction,
        at what is committed.  The producer is fenced, and the error is final (Superseded), if another process has begun
        since.
        """
        try:
            if self._copier is None:
                await self._begin()
                looks = True
            if looks:
                await self.look()
            else:
                await self._read_ends()
            return await self._copy()
        except BaseException as error:
            self._copier = None
            await self._check_fenced(error)
            raise

    async def look(self) -> None:
        """Read the topics and their ends; read the progress of those that are new.  Raises KctlError."""
        with self.source.one_deadline(follows_elections=True), self.target.one_deadline(follows_elections=True):
            of_source = await self.source.metadata()
            chosen = {
                name: topic for name, topic in of_source.topics.items() if not topic.is_internal and self.selects(name)
            }
            of_target = await self.target.metadata(list(chosen))
            self._leave_out(chosen, of_target)
            await self._add(
                of_source, of_target, [topic for name, topic in chosen.items() if name not in self.problems]
            )
            await self._read_ends()

    @property
    def lag(self) -> int:
        """Offsets that are left to copy."""
        return sum(partition.lag for partition in self.partitions.values())

    def mark(self, topic: str, *, phase: str = "") -> ProgressMark:
        """Return what a commit of progress of the topic says now."""
        return self._marks[topic]._replace(phase=phase, time_ms=self.clock_ms())

    def progress(self, phase: str = "") -> dict[TopicPartition, CommittedOffset]:
        """Return the commits of all partitions with this phase."""
        return {
            tp: CommittedOffset(
                partition.position.offset,
                partition.position.leader_epoch if partition.position.is_of_record else NO_EPOCH,
                self.mark(tp.topic, phase=phase).text(partition.offset_map.stretches),
            )
            for tp, partition in self.partitions.items()
        }

    async def _begin(self) -> None:
        """Fence an earlier process, which must not commit any more when its progress is read."""
        transaction = await self._begin_transaction()
        self._producer = transaction.producer
        plan = CopyPlan(
            target="",
            bounds={},
            records=RecordFilter(),
            records_max=None,
            keeps_partitions=True,
            bytes_per_s=None,
            isolation=IsolationLevel.READ_COMMITTED,
            progress_group=self.names.group,
        )
        self.partitions.clear()
        self._topic_ids.clear()
        self._distrusted.clear()
        self._offset_maps.clear()
        self._copier = Copier(
            plan,
            self.source,
            self.target,
            self.settings,
            limits=self.limits,
            transaction=transaction,
            offset_maps=self._offset_maps,
        )

    async def _begin_transaction(self) -> Transaction:
        """Begin with a new epoch.  Raises Superseded if another process has begun since this one has."""
        previous = self._producer
        try:
            return await Transaction.begin(
                self.target, self.names.transactional_id, timeout_ms=TRANSACTION_TIMEOUT_MS, previous=previous
            )
        except ApiError as error:
            if previous is not None and error.code in FENCED:
                raise Superseded(self.names.transactional_id) from error
            raise

    async def _check_fenced(self, error: BaseException) -> None:
        """Raise Superseded if the broker fences, and cannot tell afterwards who has begun last (before Kafka 2.5)."""
        if isinstance(error, ApiError) and error.code in FENCED:
            connection = await self.target.any_broker()
            if connection.versions.highest(InitProducerIdRequest) < EPOCH_VERSION_MIN:
                raise Superseded(self.names.transactional_id) from error

    def _leave_out(self, chosen: Mapping[str, Topic], of_target: ClusterMetadata) -> None:
        """Decide which topics cannot be copied now."""
        self.problems = {}
        for name, topic in chosen.items():
            copy = of_target.topics.get(name)
            if topic.error is not ErrorCode.NONE:
                self.problems[name] = f"the topic cannot be read: {topic.error.description}"
            elif copy is None or copy.error is not ErrorCode.NONE:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if copy is None else copy.error
                self.problems[name] = f"the target does not have the topic: {code.description}"
            elif len(copy.partitions) < len(topic.partitions):
                numbers = f"{len(copy.partitions)} partitions, the source {len(topic.partitions)}"
                self.problems[name] = f"the topic has fewer partitions in the target: {numbers}"
            elif name in self._topic_ids and self._topic_ids[name] != (topic.topic_id, copy.topic_id):
                self.problems[name] = "the topic was deleted and created again while it was copied"
            elif name in self._distrusted:
                self.problems[name] = self._distrusted[name]
        for tp in [tp for tp in self.partitions if tp.topic not in chosen or tp.topic in self.problems]:
            del self.partitions[tp]

    async def _add(self, of_source: ClusterMetadata, of_target: ClusterMetadata, topics: Iterable[Topic]) -> None:
        """Begin with the partitions that are new, where their progress is."""
        new = {
            topic.name: [
                tp
                for partition in topic.partitions
                if (tp := TopicPartition(topic.name, partition.partition)) not in self.partitions
            ]
            for topic in topics
        }
        new = {name: tps for name, tps in new.items() if tps}
        if not new:
            return
        commits = await read_commits(self.target, self.names.group)
        tps = [tp for of_topic in new.values() for tp in of_topic]
        ranges = await offset_ranges(self.source, tps)
        target_ranges = await offset_ranges(self.target, tps)
        divergences = await find_divergences(self.source, {tp: commits[tp] for tp in tps if tp in commits})
        for name, of_topic in new.items():
            topic, copy = of_source.topics[name], of_target.topics[name]
            mark = ProgressMark.of(
                topic.topic_id, copy.topic_id, of_source.cluster_id, of_target.cluster_id, len(topic.partitions)
            )
            facts = {
                tp: PartitionFacts(commits.get(tp), ranges[tp].end, divergences.get(tp), target_ranges[tp].end)
                for tp in of_topic
            }
            problems, _ = distrusted(facts, mark)
            self._marks[name] = mark
            self._topic_ids[name] = (topic.topic_id, copy.topic_id)
            if problems:
                self.problems[name] = self._distrusted[name] = f"{problems[0].tp}: {problems[0].reason}"
                continue
            for tp in of_topic:
                self.partitions[tp] = _begun(commits.get(tp), ranges[tp], target_ranges[tp])
                self._offset_maps[tp] = self.partitions[tp].offset_map

    async def _read_ends(self) -> None:
        ranges = await offset_ranges(self.source, self.partitions)
        stable = await offset_ranges(self.source, self.partitions, isolation=IsolationLevel.READ_COMMITTED)
        for tp, partition in self.partitions.items():
            partition.range, partition.stable_end = ranges[tp], stable[tp].end
            if (missing := ranges[tp].start - partition.position.offset) > 0:
                partition.deleted += missing
                partition.position = Position(ranges[tp].start)

    async def _copy(self) -> int:
        assert self._copier is not None
        now_ms = self.clock_ms()
        is_refresh = now_ms - self._refreshed_ms >= REFRESH_MS
        positions = {tp: partition.position for tp, partition in self.partitions.items()}
        committed = {
            tp: position.offset
            for tp, position in positions.items()
            if self.partitions[tp].is_committed and not is_refresh
        }
        if committed and now_ms - self._committed_ms >= HEARTBEAT_MS:
            committed.pop(min(committed))
        self._committed_ms = now_ms if len(committed) < len(positions) else self._committed_ms
        bounds = {
            tp: (at.offset, max(at.offset, min(self.partitions[tp].stable_end, at.offset + ROUND_OFFSETS)))
            for tp, at in positions.items()
        }
        if any(end > start for start, end in bounds.values()):
            self._committed_ms = now_ms
        plan = replace(
            self._copier.plan,
            bounds=bounds,
            positions=positions,
            marks={topic: mark._replace(time_ms=now_ms) for topic, mark in self._marks.items()},
        )
        self._copier.continue_with(plan, committed)
        await self._copier.run()
        self._refreshed_ms = now_ms if is_refresh else self._refreshed_ms
        for tp, partition in self.partitions.items():
            partition.position, partition.is_committed = self._copier.position(tp), True
        selected = self._copier.counts.selected
        self.copied += selected
        return selected


def _begun(commit: CommittedOffset | None, source: OffsetRange, target: OffsetRange) -> MirroredPartition:
    """Return a partition at its progress, or at the start of the source."""
    if commit is None:
        offset_map = OffsetMap()
        offset_map.begin(source.start, target.end)
        return MirroredPartition(Position(source.start), offset_map, source, source.end)
    offset_map = parse_offset_map(commit.metadata)
    return MirroredPartition(committed_position(commit), offset_map, source, source.end, is_committed=True)
