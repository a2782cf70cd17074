"""The commits of groups that __consumer_offsets still has: the latest ones of all groups, the past ones of one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.client.consuming.fetching import FetchedPartition, FetchLimits, fetch_batches, visible_batches
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from kctl.client.leaders import Outcomes, on_leaders
from kctl.errors import ApiError, ErrorCode, MalformedRequest
from kctl.lag.facts import Position
from kctl.limits import GROUP_HISTORY_COMMITS_MAX, Subject, bound
from kctl.model import GROUP_METADATA_TOPIC, TopicPartition, partition_for_key
from kctl.protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from kctl.records.batch import iterate_records
from kctl.records.header import BatchHeader, CorruptBatch
from kctl.records.internal.topics import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_metadata_value,
    decode_offset_commit_value,
    decode_offsets_key,
)
from kctl.system.reference_cycles import copy_of

LAG_HISTORY_BYTES_MAX = bound(
    Subject.COMMANDS,
    "records of __consumer_offsets that `kctl groups lag`, and `kctl top` for each sample, fetches",
    32 << 20,
    "bytes",
    on_excess="the commits of groups in partitions that were not read to the end are unknown",
)
GROUP_HISTORY_BYTES_MAX = bound(
    Subject.COMMANDS,
    "records of __consumer_offsets that `kctl groups history` and `restore --at` fetch",
    1 << 30,
    "bytes",
    on_excess="history ends with a warning, and restore is refused; both suggest a later time or a backup file",
)
LAG_HISTORY_RECORDS_MAX = bound(
    Subject.COMMANDS,
    "records of __consumer_offsets that `kctl groups lag` and `kctl top` read for the latest commits",
    20_000,
    "records",
    on_excess="the known history of commits is shorter than --window",
)
LAG_COMMITS_MAX = bound(
    Subject.COMMANDS,
    "commits of a group in a partition that `kctl groups lag` and `kctl top` keep",
    32,
    "commits",
    on_excess="every second one is dropped",
)


# The records of __consumer_offsets about given groups. Pure.


class CommitRecord(NamedTuple):
    """A commit; without a value, the deletion of the committed offset."""

    group: str
    tp: TopicPartition
    value: OffsetCommitValue | None
    time_ms: int
    """Time of the commit, or of the record of a deletion."""


class GroupRecord(NamedTuple):
    """A group after a rebalance; without a value, its deletion."""

    group: str
    value: GroupMetadataValue | None


def group_records(
    buffer: memoryview, header: BatchHeader, groups: Collection[str]
) -> Iterator[CommitRecord | GroupRecord]:
    """Yield the records of one batch about these groups.

    Raises CorruptBatch; records that cannot be decoded, and those of newer versions, are skipped.
    """
    for record in iterate_records(buffer, header):
        if record.key is None:
            continue
        try:
            key = decode_offsets_key(record.key)
            if isinstance(key, OffsetCommitKey) and key.group in groups:
                commit = None if record.value is None else decode_offset_commit_value(record.value)
                time_ms = record.timestamp if commit is None else commit.commit_timestamp
                yield CommitRecord(key.group, TopicPartition(key.topic, key.partition), commit, time_ms)
            elif isinstance(key, GroupMetadataKey) and key.group in groups:
                yield GroupRecord(
                    key.group, None if record.value is None else decode_group_metadata_value(record.value)
                )
        except MalformedRequest:
            continue


# The latest commits of groups, from __consumer_offsets: only there are the times of commits.
#
# Only the commits of the last minutes are read, and a bounded number of records of each partition; where there are
# more, the history begins later. The active segment of the topic is not compacted, so that these commits are
# complete.


_PARTITION_BYTES = 1 << 20
_LIMITS = FetchLimits(max_wait_ms=0, min_bytes=0, max_bytes=8 << 20, partition_max_bytes=_PARTITION_BYTES)

Key = tuple[str, TopicPartition]
"""Group and partition."""


@dataclass(slots=True)
class _Cursor:
    """How far one partition of __consumer_offsets has been read."""

    position: int
    since_ms: int
    """All commits since this time have been read."""
    is_clipped: bool
    """The history begins at the first record that is read, because there were too many before it."""


@dataclass(slots=True)
class CommitHistory:
    """The commits of the groups; `read` adds the newer ones, so that it may be called again and again."""

    commits: dict[Key, list[Position]] = field(default_factory=dict)
    problem: str = ""
    """Why the history is unknown after the last call of `read`."""
    _cursors: dict[TopicPartition, _Cursor] = field(default_factory=dict)
    _partition_count: int = 0
    _groups: frozenset[str] = frozenset()
    """The groups of the last call: the commits of others were skipped."""
    _failed: set[TopicPartition] = field(default_factory=set)

    def of(self, group: str, tp: TopicPartition) -> tuple[Position, ...]:
        """Return the known commits in the order of the log."""
        return tuple(self.commits.get((group, tp), ()))

    def keep(self, present: Collection[Key]) -> None:
        """Remove the commits of all other partitions."""
        for key in self.commits.keys() - present:
            del self.commits[key]

    def since_ms(self, group: str) -> int | None:
        """Return the time since which all commits of the group are known; None if the history is unknown."""
        if not self._partition_count:
            return None
        partition = self._partition_of(group)
        cursor = self._cursors.get(partition)
        return None if cursor is None or partition in self._failed else cursor.since_ms

    async def read(self, client: ClusterClient, groups: Collection[str], since_ms: int) -> None:
        """Read the commits since this time, or since the last call; remove older ones."""
        self.problem = ""
        self._forget(since_ms)
        try:
            topic = (await client.metadata([GROUP_METADATA_TOPIC])).topics.get(GROUP_METADATA_TOPIC)
            if topic is None or topic.error is not ErrorCode.NONE:
                self.problem = "__consumer_offsets cannot be read" if topic is None else topic.error.description
                return
            self._partition_count = len(topic.partitions)
            self._start_again({self._partition_of(group) for group in set(groups) - self._groups})
            self._groups = frozenset(groups)
            requested = {self._partition_of(group) for group in groups}
            await self._place(client, requested - self._cursors.keys(), since_ms)
            await self._read_to_end(client, requested, self._groups)
        except ApiError as error:
            self._failed.update(self._cursors)
            self.problem = str(error)

    def _start_again(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what was read of these partitions."""
        again = self._cursors.keys() & partitions
        if again:
            for tp in again:
                del self._cursors[tp]
            self.keep({key for key in self.commits if self._partition_of(key[0]) not in again})

    @staticmethod
    def _keep(positions: list[Position], latest: Position) -> None:
        positions.append(latest)
        if len(positions) > LAG_COMMITS_MAX:
            del positions[1:-1:2]

    def _partition_of(self, group: str) -> TopicPartition:
        return TopicPartition(GROUP_METADATA_TOPIC, partition_for_key(group, self._partition_count))

    def _forget(self, since_ms: int) -> None:
        for key, positions in list(self.commits.items()):
            if positions[0].time_ms < since_ms:
                kept = [position for position in positions if position.time_ms >= since_ms]
                # The last commit stays, because its age is shown.
                self.commits[key] = kept or positions[-1:]

    async def _place(self, client: ClusterClient, partitions: Collection[TopicPartition], since_ms: int) -> None:
        """Set cursors to the first record since that time, or to the last LAG_HISTORY_RECORDS_MAX records in all."""
        if not partitions:
            return
        ends = await list_offsets(client, dict.fromkeys(partitions, LATEST), isolation=IsolationLevel.READ_COMMITTED)
        firsts = await list_offsets(client, dict.fromkeys(partitions, since_ms))
        records_max = LAG_HISTORY_RECORDS_MAX // len(partitions)
        for tp in partitions:
            end, first = ends[tp], firsts[tp]
            if isinstance(end, ApiError) or isinstance(first, ApiError):
                self.problem = str(end if isinstance(end, ApiError) else first)
                continue
            start = end.offset if first.offset < 0 else min(first.offset, end.offset)
            clipped = max(start, end.offset - records_max)
            self._cursors[tp] = _Cursor(clipped, since_ms, is_clipped=clipped > start)

    async def _read_to_end(
        self, client: ClusterClient, requested: Collection[TopicPartition], groups: frozenset[str]
    ) -> None:
        pending = [tp for tp in requested if tp in self._cursors]
        if not pending:
            return
        found = await list_offsets(client, dict.fromkeys(pending, LATEST), isolation=IsolationLevel.READ_COMMITTED)
        ends = {tp: end.offset for tp, end in found.items() if not isinstance(end, ApiError)}
        left_bytes = LAG_HISTORY_BYTES_MAX

        async def send(connection: Connection, tps: list[TopicPartition]) -> Outcomes[int]:
            positions = {tp: self._cursors[tp].position for tp in tps}
            responses = await fetch_batches(
                connection, positions, limits=_LIMITS, isolation=IsolationLevel.READ_COMMITTED
            )
            return {response.tp: self._add(response, groups) for response in responses}

        pending = [tp for tp in ends if self._cursors[tp].position < ends[tp]]
        while pending and left_bytes > 0:
            outcomes = await on_leaders(client, pending, send)
            left_bytes -= sum(size for size in outcomes.values() if isinstance(size, int))
            # A partition without progress has an error, or nothing more to read before its end.
            pending = [tp for tp in pending if outcomes[tp] and self._is_behind(tp, ends[tp], outcomes[tp])]
        self._failed = {tp for tp in requested if tp not in ends or self._cursors[tp].position < ends[tp]}

    def _is_behind(self, tp: TopicPartition, end: int, outcome: int | ApiError) -> bool:
        return not isinstance(outcome, ApiError) and self._cursors[tp].position < end

    def _add(self, fetched: FetchedPartition, groups: frozenset[str]) -> int | ApiError:
        """Add the commits of one response; return its size."""
        if fetched.error is not ErrorCode.NONE:
            return ApiError(fetched.error)
        cursor = self._cursors[fetched.tp]
        try:
            for header, is_visible in visible_batches(fetched, IsolationLevel.READ_COMMITTED):
                if cursor.is_clipped:
                    cursor.since_ms, cursor.is_clipped = max(cursor.since_ms, header.max_timestamp), False
                if is_visible and header.last_offset >= cursor.position:
                    for record in group_records(fetched.records, header, groups):
                        if isinstance(record, CommitRecord) and record.value is not None:
                            position = Position(record.time_ms, record.value.offset)
                            self._keep(self.commits.setdefault((record.group, record.tp), []), position)
                cursor.position = max(cursor.position, header.next_offset)
        except CorruptBatch:
            return ApiError(ErrorCode.CORRUPT_MESSAGE)
        return len(fetched.records)


# Reads the records of one group from its partition of __consumer_offsets.


_HISTORY_LIMITS = FetchLimits(max_wait_ms=0, min_bytes=0, max_bytes=4 << 20, partition_max_bytes=4 << 20)
_ISOLATION = IsolationLevel.READ_COMMITTED

Add = Callable[[Iterable[CommitRecord | GroupRecord]], None]


async def read_group_records(
    client: ClusterClient,
    group: str,
    add: Add,
    *,
    since_ms: int | None = None,
    bytes_max: int = GROUP_HISTORY_BYTES_MAX,
) -> bool:
    """Pass the records of the group to `add` in the order of the log, from the first one at or after `since_ms`.

    False if there are more than `bytes_max` bytes and the rest has not been read.  Raises ApiError.
    """
    topic = (await client.metadata([GROUP_METADATA_TOPIC])).topics.get(GROUP_METADATA_TOPIC)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{GROUP_METADATA_TOPIC} does not exist")
    if topic.error is not ErrorCode.NONE:
        raise ApiError(topic.error, f"{GROUP_METADATA_TOPIC}: {topic.error.description}")
    tp = TopicPartition(GROUP_METADATA_TOPIC, partition_for_key(group, len(topic.partitions)))
    end = await _offset(client, tp, LATEST)
    position = await _offset(client, tp, EARLIEST if since_ms is None else since_ms)
    left_bytes = bytes_max
    while 0 <= position < end:
        if left_bytes <= 0:
            return False
        fetched = await _fetch(client, tp, position)
        left_bytes -= max(len(fetched.records), 1)
        following = _read(fetched, position, group, add)
        if following == position:
            break  # Nothing more before the end: an unfinished transaction, or a truncated log.
        position = following
    return True


async def _offset(client: ClusterClient, tp: TopicPartition, timestamp: int) -> int:
    found = (await list_offsets(client, {tp: timestamp}, isolation=_ISOLATION))[tp]
    if isinstance(found, ApiError):
        raise ApiError(found.code, f"{tp}: {found}")
    return found.offset


async def _fetch(client: ClusterClient, tp: TopicPartition, position: int) -> FetchedPartition:
    async def send(connection: Connection, tps: list[TopicPartition]) -> Outcomes[FetchedPartition]:
        responses = await fetch_batches(
            connection, dict.fromkeys(tps, position), limits=_HISTORY_LIMITS, isolation=_ISOLATION
        )
        return {
            response.tp: response
            if response.error is ErrorCode.NONE
            else ApiError(response.error, f"{response.tp}: {response.error.description}")
            for response in responses
        }

    outcome = (await on_leaders(client, [tp], send))[tp]
    if isinstance(outcome, ApiError):
        raise copy_of(outcome)
    return outcome


def _read(fetched: FetchedPartition, position: int, group: str, add: Add) -> int:
    """Pass on the records of one response; return the offset after them."""
    try:
        for header, is_visible in visible_batches(fetched, _ISOLATION):
            if is_visible and header.last_offset >= position:
                add(group_records(fetched.records, header, (group,)))
            position = max(position, header.next_offset)
    except CorruptBatch as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{fetched.tp}: {error}") from None
    return position


# Reconstructs the past commits of one group from the records of __consumer_offsets. Pure.
#
# Compaction keeps the last commit of each partition in the part of the log that it has cleaned, and everything after
# that part. Where a commit is present, no later one has therefore been removed between it and the next present one:
# the last present commit at or before a time is the committed offset of that time. Where none is present, the offset
# of that time is unknown.


class Committer(NamedTuple):
    """The member to which the partition was assigned at the time of the commit."""

    member_id: str
    client_id: str
    host: str


class PastCommit(NamedTuple):
    """One commit, or the deletion of a committed offset."""

    tp: TopicPartition
    time_ms: int
    committed: CommittedOffset | None
    """None for a deletion."""
    generation: int | None
    """The generation of the group after its last rebalance before the commit; None if the log does not show it."""
    committer: Committer | None
    """None if the partition was not assigned, as in a commit by an admin, or the log does not show it."""


@dataclass(slots=True)
class PastCommits:
    """The latest commits, at most `limit`, in the order of the log."""

    topics: frozenset[str] = frozenset()
    """Only commits of these topics; empty for all."""
    matches: Callable[[str], bool] | None = None
    """Whether commits of the topic of this name are selected; all are without it."""
    since_ms: int = 0
    limit: int = GROUP_HISTORY_COMMITS_MAX
    omitted: int = 0
    """Number of older commits that have been left out."""
    commits: deque[PastCommit] = field(default_factory=deque)
    has_any: bool = False
    """Whether there is a record of the group, selected or not."""
    _generation: int | None = None
    _owners: dict[TopicPartition, Committer] = field(default_factory=dict)

    def _is_selected(self, topic: str) -> bool:
        return (not self.topics or topic in self.topics) and (self.matches is None or self.matches(topic))

    def add(self, records: Iterable[CommitRecord | GroupRecord]) -> None:
        """Add records in the order of the log."""
        for record in records:
            self.has_any = True
            if isinstance(record, GroupRecord):
                self._generation = None if record.value is None else record.value.generation
                self._owners = {} if record.value is None else _owners(record.value)
                continue
            if record.time_ms < self.since_ms or not self._is_selected(record.tp.topic):
                continue
            if len(self.commits) >= self.limit:
                self.commits.popleft()
                self.omitted += 1
            owner = None if record.value is None else self._owners.get(record.tp)
            self.commits.append(
                PastCommit(record.tp, record.time_ms, _committed(record), self._generation, owner),
            )


@dataclass(slots=True)
class OffsetsAt:
    """The committed offsets of a group at one time."""

    time_ms: int
    offsets: dict[TopicPartition, CommittedOffset | None] = field(default_factory=dict)
    """None for an offset that had been deleted."""
    later: set[TopicPartition] = field(default_factory=set)
    """Partitions with a commit after that time."""
    is_excessive: bool = False
    """True if there are more than GROUP_HISTORY_COMMITS_MAX partitions; the rest is left out."""

    def add(self, records: Iterable[CommitRecord | GroupRecord]) -> None:
        """Add records in the order of the log."""
        for record in records:
            if isinstance(record, GroupRecord):
                continue
            is_known = record.tp in self.offsets or record.tp in self.later
            if not is_known and len(self.offsets) + len(self.later) >= GROUP_HISTORY_COMMITS_MAX:
                self.is_excessive = True
            elif record.time_ms > self.time_ms:
                self.later.add(record.tp)
            elif record.tp not in self.later:
                self.offsets[record.tp] = _committed(record)

    @property
    def committed(self) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that were committed at that time."""
        return {tp: offset for tp, offset in self.offsets.items() if offset is not None}

    @property
    def unknown(self) -> list[TopicPartition]:
        """Partitions with later commits only: there was none at that time, or it has been compacted away."""
        return sorted(self.later - self.offsets.keys())


def _committed(record: CommitRecord) -> CommittedOffset | None:
    value = record.value
    return None if value is None else CommittedOffset(value.offset, value.leader_epoch, value.metadata)


def _owners(group: GroupMetadataValue) -> dict[TopicPartition, Committer]:
    """Return the partitions of all members; empty if the group has no consumers."""
    owners = {}
    for member in group.members if group.protocol_type == PROTOCOL_TYPE else ():
        try:
            assignment = decode_assignment(member.assignment) if member.assignment else None
        except MalformedRequest:
            continue
        committer = Committer(member.member_id, member.client_id, member.client_host.removeprefix("/"))
        for topic in assignment.assigned_partitions if assignment else ():
            owners.update({TopicPartition(topic.topic, number): committer for number in topic.partitions})
    return owners
