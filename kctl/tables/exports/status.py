"""How far exports are behind their topics."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, NamedTuple

from kctl.client.cluster import ClusterClient
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.consuming.positions import Divergence
from kctl.client.leaders import Outcomes
from kctl.errors import ApiError, ErrorCode
from kctl.lag.unread_records import Search, find_unread
from kctl.model import TopicPartition
from kctl.tables.commits.existing import ExportState, TopicState
from kctl.tables.exec.outcome import Misfit
from kctl.tables.plans.live_topic import LiveLog, LiveTopic, divergences_of, live_topics
from kctl.tables.plans.plan import Position


class State(StrEnum):
    """State of one partition of an export, from the least severe."""

    CURRENT = "current"
    BEHIND = "behind"
    INTERRUPTED = "interrupted"
    """A planned batch is not committed: an export is running or was interrupted."""
    NEW = "new"
    """A partition of the topic that is not exported yet."""
    LOSING = "losing"
    """Records were deleted before they were exported."""
    TRUNCATED = "truncated"
    """The log ends before the exported offset, or has other records before it (see `diverged_offset`)."""
    RECREATED = "recreated"
    """The topic was deleted and created again."""
    DAMAGED = "damaged"
    """Data files of the topic are gone or damaged."""
    GONE = "gone"
    """The topic or partition does not exist."""


class ReplacedRange(NamedTuple):
    """Offsets [start, end) whose rows, of one incarnation, are of records that the topic lost after their export."""

    incarnation: int
    start: int
    end: int
    leader_epoch: Annotated[int, "Of the leader from whose log they were exported; -1 if unknown."]


class PartitionStatus(NamedTuple):
    """One partition of an export; unknown values are None."""

    topic: str
    partition: int
    state: State
    exported_offset: int | None
    end_offset: int | None
    lag: int | None
    """Offsets up to the last stable offset, transaction markers included."""
    time_lag_ms: int | None
    """Age of the first record that was not exported; 0 if there is none."""
    lost: int | None
    """Offsets that the topic no longer has and that were not exported."""
    pending: int | None
    """Offsets in the plan that is not committed."""
    batch: int | None
    committed_ms: int | None
    error: ApiError | None = None
    diverged_offset: int | None = None
    """The first offset at which the log has, or may have, other records than those that were exported."""
    replaced_ranges: tuple[ReplacedRange, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    """Of the columns whose first misfit is in this partition; their values are those of the topic."""


async def export_status(client: ClusterClient, state: ExportState, now_ms: int) -> list[PartitionStatus]:
    """Return the status of every partition of an export, in ascending order.  Raises ClusterUnreachable."""
    topics = await live_topics(client, state.topics)
    pending = _pending(state)
    found: list[PartitionStatus] = []
    for name, topic in sorted(state.topics.items()):
        live = topics[name]
        known = topic.position.partitions
        numbers = sorted({*known, *(live.logs if isinstance(live, LiveTopic) else ())})
        found += [
            _status(TopicPartition(name, number), topic, live, pending.get(TopicPartition(name, number)))
            for number in numbers
        ]
    divergences = await divergences_of(client, topics, {name: topic.position for name, topic in state.topics.items()})
    found = [_with_history(row, state.topics[row.topic], divergences) for row in found]
    rows = await _with_times(client, found, topics, now_ms)
    return [row._replace(state=State.DAMAGED) if row.topic in state.losses else row for row in rows]


def _status(tp: TopicPartition, topic: TopicState, live: LiveTopic | ApiError, pending: int | None) -> PartitionStatus:
    position: Position | None = topic.position.partitions.get(tp.partition)
    exported = position.offset if position else None
    row = PartitionStatus(*tp, State.GONE, exported, None, None, None, None, pending, topic.batch, topic.committed_ms)
    if isinstance(live, ApiError):
        return row if live.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else row._replace(error=live)
    log = live.logs.get(tp.partition)
    if isinstance(log, ApiError):
        return row._replace(state=State.BEHIND, error=log)
    if not live.is_topic_of(topic.position):
        end = log.stable_end if log else None
        return row._replace(state=State.RECREATED, end_offset=end)
    if log is None:
        return row
    return _judged(row, log)


def _judged(row: PartitionStatus, log: LiveLog) -> PartitionStatus:
    exported = row.exported_offset
    if exported is None:
        lag, lost = log.stable_end - log.start, 0
    else:
        lag, lost = max(log.stable_end - max(exported, log.start), 0), max(log.start - exported, 0)
    if exported is not None and exported > log.high_watermark:
        state = State.TRUNCATED
    elif lost:
        state = State.LOSING
    elif exported is None:
        state = State.NEW
    elif row.pending is not None:
        state = State.INTERRUPTED
    else:
        state = State.BEHIND if lag else State.CURRENT
    return row._replace(state=state, end_offset=log.stable_end, lag=lag, lost=lost, time_lag_ms=None if lag else 0)


def _with_history(row: PartitionStatus, topic: TopicState, divergences: Outcomes[Divergence]) -> PartitionStatus:
    """Add where the log differs from the exported one, rows of lost records, and values without their column."""
    ranges = tuple(
        ReplacedRange(range_.incarnation, range_.start, range_.end, range_.leader_epoch)
        for range_ in topic.position.replaced
        if range_.partition == row.partition
    )
    misfits = tuple(misfit for misfit in topic.misfits if misfit.partition == row.partition)
    row = row._replace(replaced_ranges=ranges, misfits=misfits)
    found = divergences.get(TopicPartition(row.topic, row.partition))
    if found is None:
        return row
    if isinstance(found, ApiError):
        return row._replace(error=row.error or found)
    return row._replace(state=State.TRUNCATED, diverged_offset=found.end_offset or 0)


async def _with_times(
    client: ClusterClient,
    rows: list[PartitionStatus],
    topics: Mapping[str, LiveTopic | ApiError],
    now_ms: int,
) -> list[PartitionStatus]:
    """Add the age of the first record that was not exported, and correct partitions with nothing but markers."""
    searches: dict[TopicPartition, Search] = {}
    for row in rows:
        live = topics[row.topic]
        log = live.logs.get(row.partition) if isinstance(live, LiveTopic) else None
        if row.lag and isinstance(log, LiveLog):
            tp = TopicPartition(row.topic, row.partition)
            start = max(row.exported_offset or 0, log.start)
            searches[tp] = Search(tp, start, log.stable_end, IsolationLevel.READ_COMMITTED)
    await find_unread(client, list(searches.values()))
    return [
        _timed(row, searches[tp], now_ms) if (tp := TopicPartition(row.topic, row.partition)) in searches else row
        for row in rows
    ]


def _timed(row: PartitionStatus, search: Search, now_ms: int) -> PartitionStatus:
    if search.is_complete and not search.has_found:
        state = State.CURRENT if row.state is State.BEHIND else row.state
        return row._replace(lag=0, time_lag_ms=0, state=state)
    oldest = search.oldest_timestamp_ms
    return row._replace(time_lag_ms=None if oldest is None else max(now_ms - oldest, 0))


def _pending(state: ExportState) -> dict[TopicPartition, int]:
    """Return the offsets of the plan that is not committed."""
    return {range_.tp: range_.end - range_.start for range_ in state.pending.ranges} if state.pending else {}
