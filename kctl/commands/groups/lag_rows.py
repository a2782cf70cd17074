"""Lag of groups as rows and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypedDict

from kctl.admin.lag_totals import Grouping, totals_by
from kctl.commands.rows import outcome_error
from kctl.console import ERROR_COLUMNS, Column, is_present
from kctl.quantities import counted, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kctl.admin.group_lag import GroupLag, PartitionLag
    from kctl.admin.lag_rules import Judgement
    from kctl.admin.lag_totals import LagTotal, Subject
    from kctl.admin.outcome import Outcome

UNKNOWN = "unknown"
NEVER = "never"
PARTITIONS_FAILED = "PARTITIONS_FAILED"
"""Error of a total some of whose partitions have an error."""

# A narrow terminal shows how far behind, how long, and the verdict; `drop_order` says what goes first.
_LAG_COLUMNS = (
    Column("lag", numeric=True),
    Column("time_lag", numeric=True),
    Column("consumed", "READ/S", numeric=True, drop_order=7),
    Column("produced", "NEW/S", numeric=True, drop_order=6),
    Column("catch_up", numeric=True, drop_order=9),
    Column("commit_age", numeric=True, drop_order=4),
    Column("lost", numeric=True, is_rare=True),
    Column("time_left", numeric=True, is_rare=True, drop_order=8),
    Column("verdict", trouble=lambda text: text != "OK" and is_present(text)),
    *ERROR_COLUMNS,
)
PARTITION_COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", numeric=True),
    Column("current_offset", numeric=True, drop_order=2),
    Column("log_end_offset", numeric=True, drop_order=1),
    *_LAG_COLUMNS,
)
TOTAL_COLUMNS = {
    Grouping.GROUP: (
        Column("group"),
        Column("state", drop_order=3),
        Column("partitions", "PARTS", numeric=True, drop_order=5),
        *_LAG_COLUMNS,
    ),
    Grouping.TOPIC: (
        Column("group"),
        Column("topic"),
        Column("partitions", "PARTS", numeric=True, drop_order=5),
        *_LAG_COLUMNS,
    ),
    Grouping.MEMBER: (
        Column("group"),
        Column("member_id"),
        Column("host", drop_order=2),
        Column("client_id", drop_order=1),
        Column("partitions", "PARTS", numeric=True, drop_order=5),
        *_LAG_COLUMNS,
    ),
    Grouping.ALL: (
        Column("groups", numeric=True),
        Column("partitions", "PARTS", numeric=True, drop_order=5),
        *_LAG_COLUMNS,
    ),
}


class LagItem(NamedTuple):
    """A partition of a group as a JSON object.  Times are in ms, rates in records per second; null for unknown."""

    group: str | None
    topic: str | None
    partition: int | None
    current_offset: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    lag: int | None
    time_lag_ms: int | None
    consumed_per_s: float | None
    produced_per_s: float | None
    catches_up: bool | None
    catch_up_ms: int | None
    commit_age_ms: int | None
    commit_age_ms_min: int | None
    lost: int | None
    time_left_ms: int | None
    verdict: str | None
    reason: str | None
    member_id: str | None
    host: str | None
    client_id: str | None
    time: str
    error: str | None = None
    message: str | None = None


class LagTotalItem(NamedTuple):
    """The lag of several partitions as a JSON object; null for what does not apply to the grouping, or is unknown."""

    group: str | None
    state: str | None
    members: int | None
    topic: str | None
    member_id: str | None
    host: str | None
    client_id: str | None
    groups: int
    partitions: int
    lag: int | None
    time_lag_ms: int | None
    consumed_per_s: float | None
    produced_per_s: float | None
    catches_up: bool | None
    catch_up_ms: int | None
    commit_age_ms: int | None
    commit_age_ms_min: int | None
    lost: int | None
    time_left_ms: int | None
    verdict: str | None
    reason: str | None
    time: str
    error: str | None = None
    message: str | None = None


AnyItem = LagItem | LagTotalItem


class LagFields(TypedDict):
    """The fields of an item that a judgement or a total fills in."""

    lag: int | None
    time_lag_ms: int | None
    consumed_per_s: float | None
    produced_per_s: float | None
    catches_up: bool | None
    catch_up_ms: int | None
    commit_age_ms: int | None
    commit_age_ms_min: int | None
    lost: int | None
    time_left_ms: int | None
    verdict: str | None
    reason: str | None


class LagCells(NamedTuple):
    """The fields of an item that a table shows in another way."""

    time_lag: str | None
    consumed: str | None
    produced: str | None
    catch_up: str | None
    commit_age: str | None
    lost: int | None
    time_left: str | None


def lag_items(
    groups: Sequence[GroupLag], failed: Iterable[Outcome], grouping: Grouping | None, time: str
) -> list[AnyItem]:
    """A row for each partition, or with a grouping for each total, then the groups and brokers with an error."""
    items: list[AnyItem] = []
    if grouping is None:
        items += [_item(group, one, time) for group in groups for one in group.partitions]
    else:
        done = [group for group in groups if group.outcome.is_done]
        items += [_total_item(subject, total, len(done), time) for subject, total in totals_by(done, grouping)]
    items += [_failure(group.outcome.name, group.outcome, time) for group in groups if not group.outcome.is_done]
    for one in failed:
        message = f"broker {one.name} cannot list its groups: {one.message}"
        items.append(_failure(None, one, time)._replace(message=message))
    return items


def lag_row(item: AnyItem) -> dict[str, object]:
    """The item with the cells of a table."""
    return item._asdict() | _cells(item)._asdict()


def _cells(item: AnyItem) -> LagCells:
    behind = bool(item.lag)
    catch_up = None if item.catch_up_ms is None else format_duration(item.catch_up_ms)
    if behind and item.catches_up is False:
        catch_up = NEVER
    commit_age = None if item.commit_age_ms is None else format_duration(item.commit_age_ms)
    if commit_age is None and item.commit_age_ms_min is not None:
        commit_age = f">{format_duration(item.commit_age_ms_min)}"
    time_lag = None if item.time_lag_ms is None else format_duration(item.time_lag_ms)
    return LagCells(
        time_lag=UNKNOWN if time_lag is None and behind else time_lag,
        consumed=_rate(item.consumed_per_s),
        produced=_rate(item.produced_per_s),
        catch_up=UNKNOWN if catch_up is None and behind else catch_up,
        commit_age=commit_age,
        lost=item.lost or None,
        time_left=None if item.time_left_ms is None else format_duration(item.time_left_ms),
    )


def _rate(per_s: float | None) -> str | None:
    return None if per_s is None else f"{per_s:.1f}" if per_s < 100 else f"{per_s:.0f}"


def _item(group: GroupLag, one: PartitionLag, time: str) -> LagItem:
    return LagItem(
        group=group.outcome.name,
        topic=one.tp.topic,
        partition=one.tp.partition,
        current_offset=one.committed,
        log_start_offset=one.log.start if one.log else None,
        log_end_offset=one.log.end if one.log else None,
        **_lag_fields(one.judgement),
        member_id=one.member.member_id if one.member else None,
        host=one.member.host if one.member else None,
        client_id=one.member.client_id if one.member else None,
        time=time,
        error=one.error.code.name if one.error else None,
        message=str(one.error) if one.error else None,
    )


def _total_item(subject: Subject, total: LagTotal, groups: int, time: str) -> LagTotalItem:
    group, member = subject.group, subject.member
    failed = f"errors in {total.failed} of {counted(total.partitions, 'partition')}; see --by partition"
    return LagTotalItem(
        group=group.outcome.name if group else None,
        state=group.state or None if group else None,
        members=group.member_count if group else None,
        topic=subject.topic,
        member_id=member.member_id if member else None,
        host=member.host if member else None,
        client_id=member.client_id if member else None,
        groups=1 if group else groups,
        partitions=total.partitions,
        **_lag_fields(total.judgement),
        time=time,
        error=PARTITIONS_FAILED if total.failed else None,
        message=failed if total.failed else None,
    )


def _lag_fields(found: Judgement | None) -> LagFields:
    return LagFields(
        lag=found.lag if found else None,
        time_lag_ms=found.time_lag_ms if found else None,
        consumed_per_s=_rounded(found.consumed_per_s) if found else None,
        produced_per_s=_rounded(found.produced_per_s) if found else None,
        catches_up=found.catches_up if found else None,
        catch_up_ms=found.catch_up_ms if found else None,
        commit_age_ms=found.commit_age_ms if found else None,
        commit_age_ms_min=found.commit_age_ms_min if found else None,
        lost=found.lost if found else None,
        time_left_ms=found.time_left_ms if found else None,
        verdict=found.verdict.name if found else None,
        reason=found.reason or None if found else None,
    )


def _rounded(per_s: float | None) -> float | None:
    return None if per_s is None else round(per_s, 3)


def _failure(group: str | None, outcome: Outcome, time: str) -> LagTotalItem:
    """A group or broker with an error."""
    return LagTotalItem(
        group=group,
        state=None,
        members=None,
        topic=None,
        member_id=None,
        host=None,
        client_id=None,
        groups=1,
        partitions=0,
        **_lag_fields(None),
        time=time,
        **outcome_error(outcome),
    )
