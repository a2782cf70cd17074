"""Reads the lag of the groups that a broker coordinates from its own memory and files.

As a client of the cluster, it would send itself requests for all of their partitions, which takes four times the
processor time, in longer iterations of the event loop.  What other brokers lead is `missing`.

The committed offsets are read before the ends of the logs, so that a group that keeps up is never ahead of them.

Owner: event loop, except `lag_of_groups`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from kctl.client.cluster import ClusterClient
from kctl.client.consuming.fetching.batches import FetchedPartition
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, IsolationLevel, list_offsets_at
from kctl.client.leaders import Outcomes
from kctl.client.outcome import Outcome
from kctl.errors import ApiError, ErrorCode, LogDirFailure
from kctl.lag.facts import NOTHING_FETCHED, Facts, LogRange
from kctl.lag.rules import GroupLag, PartitionLag, judge
from kctl.lag.unread_records import NO_PROGRESS_MAX, SIZES, Search, advance, find_unread
from kctl.limits import LAG_FETCH_BYTES_MAX
from kctl.model import TopicPartition
from kctl.records.header import CorruptBatch
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.loop.slices import Slices, batches, sliced_batches
from kctl.server.loop.tasks import in_thread
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.storage.log.lookup import RecordsSlice

_PER_SLICE = 250
"""Partitions that are looked at without a pause, in about 1 ms."""
_READS_PER_SLICE = 50
"""Reads that are prepared without a pause, in about 1 ms."""

_NO_LEADER = ApiError(ErrorCode.LEADER_NOT_AVAILABLE)

Commit = tuple[TopicPartition, int]
"""A partition and a committed offset."""


@dataclass(slots=True)
class GroupCommits:
    """A group and its committed offsets."""

    group_id: str
    state: str
    member_count: int
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(slots=True)
class LocalLag:
    """What a broker knows about the lag of its groups by itself."""

    groups: list[GroupCommits]
    logs: Outcomes[LogRange]
    """The ends of the partitions that the broker leads."""
    searches: dict[Commit, Search]
    """The searches for unread records in these partitions."""
    missing: dict[Commit, None]
    """The commits in partitions that other brokers lead."""

    def clear(self) -> None:
        """Free the contents, one after the other."""
        contents: list[dict[Any, Any]] = [group.offsets for group in self.groups]
        for dictionary in (*contents, self.logs, self.searches, self.missing):
            while dictionary:
                dictionary.popitem()


class _Read(NamedTuple):
    """Records to search, and what a Fetch response would say about them."""

    search: Search
    records: RecordsSlice
    last_stable_offset: int
    aborted: list[tuple[int, int]]


async def read_local_lag(
    coordinator: GroupCoordinator, replicas: ReplicaManager, *, bytes_max: int = LAG_FETCH_BYTES_MAX
) -> LocalLag:
    """Return the lag as far as this broker knows it.  Searches at most so many bytes for unread records, in threads."""
    slices = Slices(_PER_SLICE)
    groups = await _commits(coordinator, slices)
    logs: Outcomes[LogRange] = {}
    searches: dict[Commit, Search] = {}
    missing: dict[Commit, None] = {}
    for group in groups:
        async for commit in slices.of(group.offsets.items()):
            tp = commit[0]
            partition = replicas.partitions.get(tp)
            if partition is None or not partition.is_leader:
                missing[commit] = None
                continue
            if tp not in logs:
                logs[tp] = LogRange(partition.log.log_start_offset, *(partition.high_watermark,) * 2)
            search = _search_from(commit, logs[tp])
            if search is not None:
                searches.setdefault(commit, search)
    await _search(replicas, list(searches.values()), bytes_max)
    return LocalLag(groups, logs, searches, missing)


async def read_missing_lag(client: ClusterClient, local: LocalLag) -> None:
    """Add what the brokers know that lead the other partitions.  Raises ClusterUnreachable."""
    partitions = {tp for tp, _ in local.missing}
    known = await client.metadata({tp.topic for tp in partitions})
    for tp, found in (await list_offsets_at(client, partitions, (EARLIEST, LATEST), known=known)).items():
        local.logs[tp] = found if isinstance(found, ApiError) else LogRange(found[0].offset, *(found[1].offset,) * 2)
    searches = {commit: search for commit in local.missing if (search := _search_from(commit, local.logs[commit[0]]))}
    await find_unread(client, list(searches.values()), known=known)
    local.searches.update(searches)


def lag_of_groups(local: LocalLag, now_ms: int) -> list[GroupLag]:
    """Return the lag of the groups in records and in time; the verdicts know nothing but these.  For a thread."""

    def lag_of(tp: TopicPartition, offset: int) -> PartitionLag:
        log = local.logs.get(tp, _NO_LEADER)
        if isinstance(log, ApiError):
            return PartitionLag(tp, offset, None, None, None, log)
        search = local.searches.get((tp, offset))
        unread = NOTHING_FETCHED if search is None else search.unread
        facts = Facts(now_ms=now_ms, log=log, committed=offset, unread=unread)
        return PartitionLag(tp, offset, log, None, judge(facts))

    return [
        GroupLag(
            Outcome(group.group_id),
            group.state,
            group.member_count,
            tuple(lag_of(tp, group.offsets[tp]) for tp in sorted(group.offsets)),
        )
        for group in local.groups
    ]


async def _commits(coordinator: GroupCoordinator, slices: Slices) -> list[GroupCommits]:
    found: list[GroupCommits] = []
    async for hosted in slices.of(coordinator.hosted.present()):
        group_id = hosted.group.group_id
        if group_id not in coordinator.hosted:
            continue
        commits = GroupCommits(group_id, hosted.group.state_name, hosted.group.member_count)
        async for batch in slices.of(batches(coordinator.committed_partitions(group_id), _PER_SLICE), len):
            _, offsets = coordinator.committed(group_id, batch)
            commits.offsets.update({tp: value.offset for tp, (_, value) in offsets.items() if value.offset >= 0})
        found.append(commits)
    return found


def _search_from(commit: Commit, log: LogRange | ApiError) -> Search | None:
    """Return the search for the first unread record; None if there is none."""
    tp, offset = commit
    if isinstance(log, ApiError) or not (offset < log.end and log.start < log.end):
        return None
    return Search(tp, max(offset, log.start), log.end)


async def _search(replicas: ReplicaManager, searches: Sequence[Search], bytes_max: int) -> None:
    """Advance the searches, as `find_unread` does by requests."""
    for partition_bytes, _ in (*SIZES, *(SIZES[-1:] * NO_PROGRESS_MAX)):
        stuck: list[Search] = []
        async for batch in sliced_batches(searches, _READS_PER_SLICE):
            reads: list[_Read] = []
            for search in batch:
                read = _read(replicas, search, partition_bytes) if bytes_max > 0 else None
                if read is not None:
                    bytes_max -= read.records.size
                    reads.append(read)
            if reads:
                stuck += await in_thread(partial(_advance, reads))
        searches = stuck


def _read(replicas: ReplicaManager, search: Search, max_bytes: int) -> _Read | None:
    """Return the next records of the search, which are not read yet; None if the partition cannot be read here."""
    partition = replicas.partitions.get(search.tp)
    if partition is None or not partition.is_leader:
        return None
    log, stable = partition.log, partition.last_stable_offset
    is_committed_only = search.isolation is IsolationLevel.READ_COMMITTED
    bound = min(stable, search.end) if is_committed_only else search.end
    try:
        records = log.read(search.position, max_bytes, max_offset=bound)
        aborted = log.aborted_transactions(search.position, records.upper_bound(bound)) if is_committed_only else []
    except LogDirFailure as failure:
        replicas.log_dir_failed(failure)
        return None
    except ApiError:
        return None
    return _Read(
        search, records, stable, [(transaction.first_offset, transaction.producer_id) for transaction in aborted]
    )


def _advance(reads: Sequence[_Read]) -> list[Search]:
    """Read the records and advance their searches; return those that need more.  For a thread."""
    for search, records, stable, aborted in reads:
        try:
            data = memoryview(records.read())
            fetched = FetchedPartition(search.tp, ErrorCode.NONE, search.end, stable, 0, data, aborted=aborted)
            advance([search], fetched, search.isolation)
        except (OSError, CorruptBatch):
            continue  # Its time is unknown.
    return [search for search, *_ in reads if not search.is_over]
