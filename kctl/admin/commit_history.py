"""The latest commits of groups, from __consumer_offsets: only there are the times of commits.

Only the commits of the last minutes are read, and a bounded number of records of each partition; where there are more,
the history begins later.  The active segment of the topic is not compacted, so that these commits are complete.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from kctl.admin.lag_facts import Position
from kctl.admin.offsets_records import CommitRecord, group_records
from kctl.client.cluster import ClusterClient
from kctl.client.fetching import FetchedPartition, FetchLimits, fetch_batches, visible_batches
from kctl.client.leaders import Outcomes, on_leaders
from kctl.client.list_offsets import LATEST, IsolationLevel, list_offsets
from kctl.client.transport import Connection
from kctl.errors import ApiError, ErrorCode
from kctl.limits import LAG_COMMITS_MAX, LAG_HISTORY_BYTES_MAX, LAG_HISTORY_RECORDS_MAX
from kctl.model import GROUP_METADATA_TOPIC, TopicPartition, partition_for_key
from kctl.records.header import CorruptBatch

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
        """The known commits in the order of the log."""
        return tuple(self.commits.get((group, tp), ()))

    def keep(self, present: Collection[Key]) -> None:
        """Removes the commits of all other partitions."""
        for key in self.commits.keys() - present:
            del self.commits[key]

    def since_ms(self, group: str) -> int | None:
        """All commits of the group since this time are known; None if the history is unknown."""
        if not self._partition_count:
            return None
        partition = self._partition_of(group)
        cursor = self._cursors.get(partition)
        return None if cursor is None or partition in self._failed else cursor.since_ms

    async def read(self, client: ClusterClient, groups: Collection[str], since_ms: int) -> None:
        """Reads the commits since this time, or since the last call; removes older ones."""
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
        """Forgets what was read of these partitions."""
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
        """Sets cursors to the first record since that time, or to the last LAG_HISTORY_RECORDS_MAX records in all."""
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
            return {one.tp: self._add(one, groups) for one in responses}

        pending = [tp for tp in ends if self._cursors[tp].position < ends[tp]]
        while pending and left_bytes > 0:
            outcomes = await on_leaders(client, pending, send)
            left_bytes -= sum(one for one in outcomes.values() if isinstance(one, int))
            # A partition without progress has an error, or nothing more to read before its end.
            pending = [tp for tp in pending if outcomes[tp] and self._is_behind(tp, ends[tp], outcomes[tp])]
        self._failed = {tp for tp in requested if tp not in ends or self._cursors[tp].position < ends[tp]}

    def _is_behind(self, tp: TopicPartition, end: int, outcome: int | ApiError) -> bool:
        return not isinstance(outcome, ApiError) and self._cursors[tp].position < end

    def _add(self, fetched: FetchedPartition, groups: frozenset[str]) -> int | ApiError:
        """Adds the commits of one response; returns its size."""
        if fetched.error is not ErrorCode.NONE:
            return ApiError(fetched.error)
        cursor = self._cursors[fetched.tp]
        try:
            for header, is_visible in visible_batches(fetched, IsolationLevel.READ_COMMITTED):
                if cursor.is_clipped:
                    cursor.since_ms, cursor.is_clipped = max(cursor.since_ms, header.max_timestamp), False
                if is_visible and header.last_offset >= cursor.position:
                    for one in group_records(fetched.records, header, groups):
                        if isinstance(one, CommitRecord) and one.value is not None:
                            position = Position(one.time_ms, one.value.offset)
                            self._keep(self.commits.setdefault((one.group, one.tp), []), position)
                cursor.position = max(cursor.position, header.next_offset)
        except CorruptBatch:
            return ApiError(ErrorCode.CORRUPT_MESSAGE)
        return len(fetched.records)
