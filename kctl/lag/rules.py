"""How far a group is behind in one partition, and in sum, and what that means.  Pure; docs/lag.md states the rules."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

from kctl.client.outcome import Outcome
from kctl.errors import ApiError
from kctl.lag.facts import Facts, GroupMember, LogRange, Position
from kctl.model import TopicPartition
from kctl.output.quantities import counted

# How far a group is behind in one partition, and what that means. Pure; docs/lag.md states the same rules in prose.
#
# `judge` turns the facts of kctl/lag/facts.py into a judgement: lag, rates, time to catch up, and a verdict
# with its reason. A value that the facts do not determine is None; it is never estimated from other facts.


PATIENCE_SHARE = 5
"""Records that wait are no problem before this fraction of the window."""
RETENTION_SHARE = 10
"""Records are about to be deleted in the last tenth of the retention."""
STILL_COMMITTING_MS = 10_000
"""The last commit of a member that leaves is older soon; a job that is no member goes on committing."""
SPAN_MS_MIN = 1_000
"""Rates are computed over at least this time."""


class Verdict(IntEnum):
    """The verdicts, from the least severe to the most severe."""

    OK = 0
    WARN = 1
    REWOUND = 2
    STALLED = 3
    STOPPED = 4
    LOSING = 5


class Judgement(NamedTuple):
    """How far behind a reader is.  Rates are in records per second."""

    lag: int | None
    """Unread records; None without a commit and for a commit beyond the end."""
    lost: int
    """Offsets that were deleted before they were read."""
    time_lag_ms: int | None
    """How long the first unread record has been waiting; 0 without lag, None if unknown."""
    consumed_per_s: float | None
    produced_per_s: float | None
    catches_up: bool | None
    """Whether it reads faster than others write; None if unknown."""
    catch_up_ms: int | None
    """Time until everything is read at these rates; None if never or unknown."""
    commit_age_ms: int | None
    """Age of the last commit; None if it is not in the known history."""
    commit_age_ms_min: int | None
    """The minimum age, if the known history has no commit."""
    time_left_ms: int | None
    """Time until unread records may be deleted; None without a limit, or unknown."""
    verdict: Verdict
    reason: str
    """Why it is not OK; empty if it is."""


NO_COMMIT = "there is no committed offset: it has expired, or there never was one"
AFTER_END = "the committed offset is after the end: the topic was created again, or its log was truncated"


def judge(facts: Facts) -> Judgement:
    """Return the lag and the verdict."""
    lag = _lag(facts)
    time_lag_ms = _time_lag_ms(facts, lag)
    consumed, produced = consumed_per_s(facts), produced_per_s(facts)
    catches_up, catch_up_ms = (None, None) if lag and _has_left(facts) else _catch_up(lag, consumed, produced)
    commit_age_ms = max(0, facts.now_ms - facts.commits[-1].time_ms) if facts.commits else None
    age_min = None
    if commit_age_ms is None and facts.committed is not None and facts.commits_since_ms is not None:
        age_min = max(0, facts.now_ms - facts.commits_since_ms)
    judgement = Judgement(
        lag=lag,
        lost=max(0, facts.log.start - facts.committed) if facts.committed is not None else 0,
        time_lag_ms=time_lag_ms,
        consumed_per_s=consumed,
        produced_per_s=produced,
        catches_up=catches_up,
        catch_up_ms=catch_up_ms,
        commit_age_ms=commit_age_ms,
        commit_age_ms_min=age_min,
        time_left_ms=_time_left_ms(facts, lag, produced),
        verdict=Verdict.OK,
        reason="",
    )
    verdict, reason = next(_problems(facts, judgement), (Verdict.OK, ""))
    return judgement._replace(verdict=verdict, reason=reason)


def consumed_per_s(facts: Facts) -> float | None:
    """Return how fast the committed offset moved forward in the window; None if that is unknown."""
    if facts.committed is None:
        return None
    positions = _positions(facts)
    if len(positions) < 2:
        covered = facts.commits_since_ms is not None and facts.commits_since_ms <= _window_start(facts)
        return 0.0 if covered and not positions else None
    span_ms = facts.now_ms - positions[0].time_ms
    if span_ms < SPAN_MS_MIN:
        return None
    offsets = [position.offset for position in positions] + [facts.committed]
    forward = sum(max(0, after - before) for before, after in itertools.pairwise(offsets))
    return forward * 1000 / span_ms


def produced_per_s(facts: Facts) -> float | None:
    """Return how fast the end of the log moved in the window: since an earlier sample, else by the time index."""
    looks = [look for look in facts.looks if look.time_ms >= _window_start(facts)]
    first = Position(looks[0].time_ms, looks[0].end) if looks else facts.end_before
    if first is None or facts.now_ms - first.time_ms < SPAN_MS_MIN:
        return None
    return max(0, facts.log.end - first.offset) * 1000 / (facts.now_ms - first.time_ms)


def _problems(facts: Facts, judgement: Judgement) -> Iterator[tuple[Verdict, str]]:
    """Yield all problems, the most severe first."""
    if facts.committed is not None and facts.committed > facts.log.high_watermark:
        yield Verdict.LOSING, AFTER_END
    losing = _losing(facts, judgement)
    if losing:
        yield Verdict.LOSING, losing
    if judgement.lag:
        if _is_abandoned(facts, judgement):
            yield Verdict.STOPPED, "no member reads the partition, and nothing is committed"
        elif _is_waiting(facts, judgement) and _still_ms(facts) >= facts.window_ms:
            yield Verdict.STALLED, "the committed offset has not moved, although records are unread"
    if facts.committed is not None and any(position.offset > facts.committed for position in _positions(facts)):
        yield Verdict.REWOUND, "the committed offset was set back"
    if facts.committed is None and facts.log.end > facts.log.start:
        yield Verdict.WARN, NO_COMMIT
    patience_ms = _patience_ms(facts)
    if judgement.lag and not judgement.catches_up:
        if judgement.time_lag_ms is not None and judgement.time_lag_ms >= patience_ms:
            yield Verdict.WARN, "records wait, and the group is not catching up"
        if judgement.time_lag_ms is None and judgement.catches_up is False:
            yield Verdict.WARN, "the group reads more slowly than others write"


def _is_abandoned(facts: Facts, judgement: Judgement) -> bool:
    """Return whether no member is assigned the partition, and the whole window is known to be without a commit.

    A group that has had members, and has none now, has stopped at once.  Jobs of Spark and Flink commit without being
    members.  One that had nothing to read for longer than the window has
    the time of the patience to commit after a new record.
    """
    start_ms = _window_start(facts)
    if _has_left(facts):
        return True
    if facts.is_assigned or _has_moved(facts) or any(commit.time_ms > start_ms for commit in facts.commits):
        return False
    is_known = facts.commits_since_ms is not None and facts.commits_since_ms <= start_ms
    if not is_known and _still_ms(facts) < facts.window_ms:
        return False
    return judgement.time_lag_ms is None or judgement.time_lag_ms >= _patience_ms(facts)


def _has_left(facts: Facts) -> bool:
    """Return whether the members have left, and nobody has gone on committing."""
    return facts.has_left and not any(commit.time_ms > facts.now_ms - STILL_COMMITTING_MS for commit in facts.commits)


def _losing(facts: Facts, judgement: Judgement) -> str:
    """Return why unread records were deleted or are about to be; empty if they are not."""
    committed = facts.committed
    if committed is None:
        return ""
    if committed > facts.log.high_watermark:
        return "the committed offset is beyond the end of the log: the topic was created again, or truncated"
    if judgement.lost:
        return "records were deleted before they were read"
    if not judgement.lag or judgement.time_left_ms is None:
        return ""
    if judgement.catch_up_ms is not None and judgement.catch_up_ms < judgement.time_left_ms:
        return ""
    until_expiry_ms, used_bytes = _until_expiry_ms(facts), _unread_bytes(facts)
    if until_expiry_ms is not None and until_expiry_ms * RETENTION_SHARE <= (facts.retention.ms or 0):
        return "retention.ms is about to overtake the committed offset"
    limit = facts.retention.bytes
    if used_bytes is not None and limit is not None and used_bytes * RETENTION_SHARE >= limit * (RETENTION_SHARE - 1):
        return "retention.bytes is about to overtake the committed offset"
    until_start_ms = _until_start_ms(facts)
    if until_start_ms is not None and until_start_ms <= facts.window_ms:
        return "the start of the log is about to overtake the committed offset"
    return ""


def _lag(facts: Facts) -> int | None:
    committed, log = facts.committed, facts.log
    if committed is None or committed > log.high_watermark:
        return None
    return facts.unread.records if facts.unread.records is not None else max(0, log.end - max(committed, log.start))


def _time_lag_ms(facts: Facts, lag: int | None) -> int | None:
    if lag == 0:
        return 0
    timestamp_ms = facts.unread.oldest_timestamp_ms
    return None if lag is None or timestamp_ms is None else max(0, facts.now_ms - timestamp_ms)


def _catch_up(lag: int | None, consumed: float | None, produced: float | None) -> tuple[bool | None, int | None]:
    if lag == 0:
        return True, 0
    if lag is None or consumed is None or produced is None:
        return None, None
    if consumed <= produced:
        return False, None
    return True, round(lag * 1000 / (consumed - produced))


def _time_left_ms(facts: Facts, lag: int | None, produced: float | None) -> int | None:
    """Return the earliest time at which a limit can reach the committed offset."""
    if not lag:
        return None
    limits = (_until_expiry_ms(facts), _until_size_ms(facts, produced), _until_start_ms(facts))
    return min((limit for limit in limits if limit is not None), default=None)


def _until_expiry_ms(facts: Facts) -> int | None:
    """Return the time until the first unread record is as old as retention.ms.

    Segments are deleted as a whole, so that it may stay longer.
    """
    timestamp_ms = facts.unread.oldest_timestamp_ms
    if facts.retention.ms is None or timestamp_ms is None:
        return None
    return max(0, timestamp_ms + facts.retention.ms - facts.now_ms)


def _until_size_ms(facts: Facts, produced: float | None) -> int | None:
    """Return the time until unread records take retention.bytes, at the present rate and mean size of a record."""
    used_bytes = _unread_bytes(facts)
    if used_bytes is None or facts.retention.bytes is None:
        return None
    if used_bytes >= facts.retention.bytes:
        return 0
    bytes_per_s = (produced or 0.0) * (facts.size_bytes or 0) / (facts.log.high_watermark - facts.log.start)
    return round((facts.retention.bytes - used_bytes) * 1000 / bytes_per_s) if bytes_per_s > 0 else None


def _unread_bytes(facts: Facts) -> int | None:
    """Return the part of the log's size that is after the committed offset, in proportion to the offsets."""
    log = facts.log
    if facts.size_bytes is None or facts.committed is None or log.high_watermark <= log.start:
        return None
    unread = log.high_watermark - max(facts.committed, log.start)
    return max(0, unread) * facts.size_bytes // (log.high_watermark - log.start)


def _until_start_ms(facts: Facts) -> int | None:
    """Return the time until the start of the log reaches a commit that does not move, at the speed since the first
    sample.

    A start that moves together with the commit is that of a reader that deletes the records that it has read (Kafka
    Streams).
    """
    if facts.committed is None or not facts.looks or _has_moved(facts):
        return None
    first = facts.looks[0]
    moved, span_ms = facts.log.start - first.start, facts.now_ms - first.time_ms
    if moved <= 0 or span_ms < SPAN_MS_MIN:
        return None
    return max(0, facts.committed - facts.log.start) * span_ms // moved


def _patience_ms(facts: Facts) -> int:
    return facts.window_ms // PATIENCE_SHARE


def _window_start(facts: Facts) -> int:
    return facts.now_ms - facts.window_ms


def _positions(facts: Facts) -> list[Position]:
    """Return the known committed offsets of the window, from commits and samples, in the order of time."""
    start_ms = _window_start(facts)
    return sorted(look for look in (*facts.commits, *_looks_with_commit(facts)) if look.time_ms >= start_ms)


def _has_moved(facts: Facts) -> bool:
    """Return whether the committed offset is known to have changed in the window."""
    return any(position.offset != facts.committed for position in _positions(facts))


def _still_ms(facts: Facts) -> int:
    """Return how long the committed offset is known to be unchanged."""
    since_ms = facts.now_ms
    for look in sorted((*facts.commits, *_looks_with_commit(facts)), reverse=True):
        if look.offset != facts.committed:
            break
        since_ms = min(since_ms, look.time_ms)
    else:
        if not facts.commits and facts.commits_since_ms is not None:
            since_ms = min(since_ms, facts.commits_since_ms)
    return facts.now_ms - since_ms


def _looks_with_commit(facts: Facts) -> Iterator[Position]:
    return (Position(look.time_ms, look.committed) for look in facts.looks if look.committed is not None)


def _is_waiting(facts: Facts, judgement: Judgement) -> bool:
    """Return whether records have been unread for the whole window: by an early sample, else by the first one's
    timestamp.
    """
    if any(
        look.time_ms <= _window_start(facts) and look.committed is not None and look.end > look.committed
        for look in facts.looks
    ):
        return True
    return judgement.time_lag_ms is not None and judgement.time_lag_ms >= facts.window_ms


# The lag of one group and of its partitions. Pure.


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group.  With an error there is no judgement."""

    tp: TopicPartition
    committed: int | None
    log: LogRange | None
    member: GroupMember | None
    judgement: Judgement | None
    error: ApiError | None = None

    @property
    def uncommitted_records(self) -> int:
        """The offsets that the log has, if the group has committed none of the partition."""
        return 0 if self.committed is not None or self.log is None else max(0, self.log.end - self.log.start)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """One group; without partitions if its outcome is an error."""

    outcome: Outcome
    state: str = ""
    member_count: int = 0
    partitions: tuple[PartitionLag, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The most severe verdict of its partitions."""
        return max(
            (partition.judgement.verdict for partition in self.partitions if partition.judgement), default=Verdict.OK
        )


# Sums of lag by group, topic, member, or over everything. Pure.
#
# A sum with an unknown part is unknown, except for the number of unread records, where partitions without a committed
# offset are left out.


class Grouping(StrEnum):
    """The kinds of totals."""

    GROUP = "group"
    TOPIC = "topic"
    """A topic within a group."""
    MEMBER = "member"
    """A member of a group; partitions without one are together in one total."""
    ALL = "all"


class LagTotal(NamedTuple):
    """The lag of several partitions."""

    partitions: int
    failed: int
    """Partitions with an error, which `judgement` leaves out."""
    judgement: Judgement
    """The sum of records and rates, the longest time lag and time to catch up, the age of the last commit, the
    shortest time left, and the most severe verdict with its reason.
    """
    uncommitted_partitions: int = 0
    """Partitions with records and without a committed offset, which count for no lag."""
    uncommitted_records: int = 0
    """Offsets in these partitions."""


class Subject(NamedTuple):
    """The group, topic and member of a total; None where it has several."""

    group: GroupLag | None
    topic: str | None
    member: GroupMember | None


def totals_by(groups: Iterable[GroupLag], grouping: Grouping) -> list[tuple[Subject, LagTotal]]:
    """Return the totals of groups without an error."""
    partitions_by_key: dict[object, tuple[Subject, list[PartitionLag]]] = {}
    for group in groups:
        if not group.outcome.is_done:
            continue
        if grouping is Grouping.GROUP:
            partitions_by_key[group.outcome.name] = (Subject(group, None, None), [])
        for partition in group.partitions:
            key, subject = _subject(grouping, group, partition)
            partitions_by_key.setdefault(key, (subject, []))[1].append(partition)
    if grouping is Grouping.ALL and not partitions_by_key:
        return [(Subject(None, None, None), sum_partitions([]))]
    return [(subject, sum_partitions(partitions)) for subject, partitions in partitions_by_key.values()]


def _subject(grouping: Grouping, group: GroupLag, partition: PartitionLag) -> tuple[object, Subject]:
    name = group.outcome.name
    match grouping:
        case Grouping.GROUP:
            return name, Subject(group, None, None)
        case Grouping.TOPIC:
            return (name, partition.tp.topic), Subject(group, partition.tp.topic, None)
        case Grouping.MEMBER:
            return (name, partition.member and partition.member.member_id), Subject(group, None, partition.member)
        case Grouping.ALL:
            return None, Subject(None, None, None)


def sum_partitions(partitions: Sequence[PartitionLag]) -> LagTotal:
    """Return the total of these partitions."""
    judged = [partition.judgement for partition in partitions if partition.judgement is not None]
    uncommitted = [partition.uncommitted_records for partition in partitions if partition.uncommitted_records]
    total = _combined(judged, is_empty=not partitions)
    if uncommitted:
        text = f"{sum(uncommitted):,} unread in {counted(len(uncommitted), 'partition')} without a commit"
        others = f"{total.reason}; " if total.reason and total.reason != NO_COMMIT else ""
        total = total._replace(reason=f"{others}{text}")
    return LagTotal(len(partitions), len(partitions) - len(judged), total, len(uncommitted), sum(uncommitted))


def _combined(judged: Sequence[Judgement], *, is_empty: bool) -> Judgement:
    """Return the judgement on all partitions together; without partitions there is no lag, not an unknown one."""
    behind = [judgement for judgement in judged if judgement.lag]
    worst = max(judged, key=lambda judgement: judgement.verdict, default=None)
    lags = [judgement.lag for judgement in judged if judgement.lag is not None]
    return Judgement(
        lag=sum(lags) if lags or is_empty else None,
        lost=sum(judgement.lost for judgement in judged),
        time_lag_ms=_longest(judgement.time_lag_ms for judgement in behind) if lags or is_empty else None,
        consumed_per_s=_sum(judgement.consumed_per_s for judgement in judged),
        produced_per_s=_sum(judgement.produced_per_s for judgement in judged),
        catches_up=_catches_up(behind),
        catch_up_ms=_longest(judgement.catch_up_ms for judgement in behind),
        commit_age_ms=min(
            (judgement.commit_age_ms for judgement in judged if judgement.commit_age_ms is not None), default=None
        ),
        commit_age_ms_min=min(
            (judgement.commit_age_ms_min for judgement in judged if judgement.commit_age_ms_min is not None),
            default=None,
        ),
        time_left_ms=min(
            (judgement.time_left_ms for judgement in judged if judgement.time_left_ms is not None), default=None
        ),
        verdict=worst.verdict if worst else Verdict.OK,
        reason=worst.reason if worst else "",
    )


def _longest(times_ms: Iterable[int | None]) -> int | None:
    """Return the longest time, 0 for none; None if one is unknown."""
    longest = 0
    for time_ms in times_ms:
        if time_ms is None:
            return None
        longest = max(longest, time_ms)
    return longest


def _sum(rates: Iterable[float | None]) -> float | None:
    """Return the sum; None if one is unknown, or there is none."""
    known = list(rates)
    return sum(rate for rate in known if rate is not None) if known and None not in known else None


def _catches_up(behind: Sequence[Judgement]) -> bool | None:
    if any(judgement.catches_up is False for judgement in behind):
        return False
    return None if any(judgement.catches_up is None for judgement in behind) else True
