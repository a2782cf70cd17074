"""Sums of lag by group, topic, member, or over everything.  Pure.

A sum with an unknown part is unknown, except for the number of unread records, where partitions without a committed
offset are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from kctl.admin.group_description import GroupMember
from kctl.admin.group_lag import GroupLag, PartitionLag
from kctl.admin.lag_rules import Judgement, Verdict


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


class Subject(NamedTuple):
    """The group, topic and member of a total; None where it has several."""

    group: GroupLag | None
    topic: str | None
    member: GroupMember | None


def totals_by(groups: Iterable[GroupLag], grouping: Grouping) -> list[tuple[Subject, LagTotal]]:
    """The totals of groups without an error."""
    found: dict[object, tuple[Subject, list[PartitionLag]]] = {}
    for group in groups:
        if not group.outcome.is_done:
            continue
        if grouping is Grouping.GROUP:
            found[group.outcome.name] = (Subject(group, None, None), [])
        for one in group.partitions:
            key, subject = _subject(grouping, group, one)
            found.setdefault(key, (subject, []))[1].append(one)
    if grouping is Grouping.ALL and not found:
        return [(Subject(None, None, None), total_of([]))]
    return [(subject, total_of(partitions)) for subject, partitions in found.values()]


def _subject(grouping: Grouping, group: GroupLag, one: PartitionLag) -> tuple[object, Subject]:
    name = group.outcome.name
    match grouping:
        case Grouping.GROUP:
            return name, Subject(group, None, None)
        case Grouping.TOPIC:
            return (name, one.tp.topic), Subject(group, one.tp.topic, None)
        case Grouping.MEMBER:
            return (name, one.member and one.member.member_id), Subject(group, None, one.member)
        case Grouping.ALL:
            return None, Subject(None, None, None)


def total_of(partitions: Sequence[PartitionLag]) -> LagTotal:
    """The total of these partitions."""
    judged = [one.judgement for one in partitions if one.judgement is not None]
    return LagTotal(len(partitions), len(partitions) - len(judged), _combined(judged, is_empty=not partitions))


def _combined(judged: Sequence[Judgement], *, is_empty: bool) -> Judgement:
    """The judgement on all partitions together; without partitions there is no lag, rather than an unknown one."""
    behind = [one for one in judged if one.lag]
    worst = max(judged, key=lambda one: one.verdict, default=None)
    lags = [one.lag for one in judged if one.lag is not None]
    return Judgement(
        lag=sum(lags) if lags or is_empty else None,
        lost=sum(one.lost for one in judged),
        time_lag_ms=_longest(one.time_lag_ms for one in behind) if lags or is_empty else None,
        consumed_per_s=_sum(one.consumed_per_s for one in judged),
        produced_per_s=_sum(one.produced_per_s for one in judged),
        catches_up=_catches_up(behind),
        catch_up_ms=_longest(one.catch_up_ms for one in behind),
        commit_age_ms=min((one.commit_age_ms for one in judged if one.commit_age_ms is not None), default=None),
        commit_age_ms_min=min(
            (one.commit_age_ms_min for one in judged if one.commit_age_ms_min is not None), default=None
        ),
        time_left_ms=min((one.time_left_ms for one in judged if one.time_left_ms is not None), default=None),
        verdict=worst.verdict if worst else Verdict.OK,
        reason=worst.reason if worst else "",
    )


def _longest(times_ms: Iterable[int | None]) -> int | None:
    """The longest time, 0 for none; None if one is unknown."""
    longest = 0
    for one in times_ms:
        if one is None:
            return None
        longest = max(longest, one)
    return longest


def _sum(rates: Iterable[float | None]) -> float | None:
    """The sum; None if one is unknown, or there is none."""
    known = list(rates)
    return sum(one for one in known if one is not None) if known and None not in known else None


def _catches_up(behind: Sequence[Judgement]) -> bool | None:
    if any(one.catches_up is False for one in behind):
        return False
    return None if any(one.catches_up is None for one in behind) else True
