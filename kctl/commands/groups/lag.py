"""`kctl groups lag`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypedDict

import typer

from kctl.admin.groups.lag import LagOptions, LagReader
from kctl.admin.topics.offsets import check_partitions
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Duration, LagCondition
from kctl.commands.frame.options.values import format_time
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.commands.groups.resets import parse_scope
from kctl.commands.groups.selection import (
    GroupRegex,
    Names,
    TopicRegex,
    Topics,
    group_pattern,
    selected_groups,
    topic_pattern,
)
from kctl.errors import ClusterUnreachable, UsageError
from kctl.lag.rules import Grouping, Verdict, totals_by
from kctl.model import TopicPartition
from kctl.output.console import JSON_ONLY, Column, ErrorName, ErrorText, Format, columns_of, is_present
from kctl.output.quantities import INT32_MAX, counted, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kctl.client.cluster import ClusterClient
    from kctl.client.outcome import Outcome
    from kctl.commands.frame.options.values import Condition
    from kctl.commands.reading.searches import NamePattern
    from kctl.lag.rules import GroupLag, Judgement, LagTotal, PartitionLag, Subject


# Lag of groups as rows and as JSON.


UNKNOWN = "unknown"
NEVER = "never"
PARTITIONS_FAILED = "PARTITIONS_FAILED"
"""Error of a total some of whose partitions have an error."""

# Fields of rows. A narrow terminal shows how far behind, how long, and the verdict; `drop_order` says what goes first.
TimeLag = Annotated[int | None, Column("time_lag")]
Consumed = Annotated[float | None, Column("consumed", "READ/S", drop_order=7)]
Produced = Annotated[float | None, Column("produced", "NEW/S", drop_order=6)]
CatchesUp = Annotated[bool | None, JSON_ONLY]
CatchUp = Annotated[int | None, Column("catch_up", drop_order=9)]
CommitAge = Annotated[int | None, Column("commit_age", drop_order=4)]
CommitAgeMin = Annotated[int | None, JSON_ONLY]
Lost = Annotated[int | None, Column(is_rare=True)]
TimeLeft = Annotated[int | None, Column("time_left", is_rare=True, drop_order=8)]
VerdictName = Annotated[str | None, Column(trouble=lambda text: text != "OK" and is_present(text))]
Reason = Annotated[str | None, Column(wraps=True, is_rare=True, drop_order=1)]


class LagItem(NamedTuple):
    """A partition of a group as a JSON object.  Times are in ms, rates in records per second; null for unknown."""

    group: str | None
    topic: str | None
    partition: int | None
    current_offset: Annotated[int | None, Column(drop_order=2)]
    log_start_offset: Annotated[int | None, JSON_ONLY]
    log_end_offset: Annotated[int | None, Column(drop_order=1)]
    lag: int | None
    time_lag_ms: TimeLag
    consumed_per_s: Consumed
    produced_per_s: Produced
    catches_up: CatchesUp
    catch_up_ms: CatchUp
    commit_age_ms: CommitAge
    commit_age_ms_min: CommitAgeMin
    lost: Lost
    time_left_ms: TimeLeft
    verdict: VerdictName
    reason: Reason
    member_id: Annotated[str | None, JSON_ONLY]
    host: Annotated[str | None, Column(is_rare=True, drop_order=1)]
    client_id: Annotated[str | None, Column(is_rare=True, drop_order=1)]
    time: Annotated[str, JSON_ONLY]
    error: ErrorName = None
    message: ErrorText = None


class LagTotalItem(NamedTuple):
    """The lag of several partitions as a JSON object; null for what does not apply to the grouping, or is unknown."""

    group: str | None
    state: Annotated[str | None, Column(drop_order=3)]
    members: Annotated[int | None, JSON_ONLY]
    topic: str | None
    member_id: str | None
    host: Annotated[str | None, Column(drop_order=2)]
    client_id: Annotated[str | None, Column(drop_order=1)]
    groups: int
    partitions: Annotated[int, Column(title="PARTS", drop_order=5)]
    lag: int | None
    time_lag_ms: TimeLag
    consumed_per_s: Consumed
    produced_per_s: Produced
    catches_up: CatchesUp
    catch_up_ms: CatchUp
    commit_age_ms: CommitAge
    commit_age_ms_min: CommitAgeMin
    lost: Lost
    time_left_ms: TimeLeft
    uncommitted_partitions: Annotated[int, JSON_ONLY, "Partitions with records and without a committed offset."]
    uncommitted_records: Annotated[int, JSON_ONLY, "Offsets in these partitions; they count for no lag."]
    verdict: VerdictName
    reason: Reason
    time: Annotated[str, JSON_ONLY]
    error: ErrorName = None
    message: ErrorText = None


_OMITTED = {
    Grouping.GROUP: ("topic", "member_id", "host", "client_id", "groups"),
    Grouping.TOPIC: ("state", "member_id", "host", "client_id", "groups"),
    Grouping.MEMBER: ("state", "topic", "groups"),
    Grouping.ALL: ("group", "state", "topic", "member_id", "host", "client_id"),
}
"""The fields of a total that are no columns with a grouping."""


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


def lag_items(
    groups: Sequence[GroupLag], failed: Iterable[Outcome], grouping: Grouping | None, time: str
) -> list[AnyItem]:
    """Return a row for each partition, or with a grouping for each total, then the groups and brokers with an error."""
    items: list[AnyItem] = []
    if grouping is None:
        items += [_item(group, partition, time) for group in groups for partition in group.partitions]
    else:
        done = [group for group in groups if group.outcome.is_done]
        items += [_total_item(subject, total, len(done), time) for subject, total in totals_by(done, grouping)]
    items += [_failure(group.outcome.name, group.outcome, time) for group in groups if not group.outcome.is_done]
    for outcome in failed:
        message = f"broker {outcome.name} cannot list its groups: {outcome.message}"
        items.append(_failure(None, outcome, time)._replace(message=message))
    return items


def lag_row(item: AnyItem) -> dict[str, object]:
    """Return the item with the cells of a table."""
    return item._asdict() | _cells(item)


def _cells(item: AnyItem) -> dict[str, object]:
    """Return the fields that a table shows in another way."""
    behind = bool(item.lag)
    catch_up = None if item.catch_up_ms is None else format_duration(item.catch_up_ms)
    if behind and item.catches_up is False:
        catch_up = NEVER
    commit_age = None if item.commit_age_ms is None else format_duration(item.commit_age_ms)
    if commit_age is None and item.commit_age_ms_min is not None:
        commit_age = f">{format_duration(item.commit_age_ms_min)}"
    time_lag = None if item.time_lag_ms is None else format_duration(item.time_lag_ms)
    return {
        "time_lag_ms": UNKNOWN if time_lag is None and behind else time_lag,
        "consumed_per_s": _rate(item.consumed_per_s),
        "produced_per_s": _rate(item.produced_per_s),
        "catch_up_ms": UNKNOWN if catch_up is None and behind else catch_up,
        "commit_age_ms": commit_age,
        "lost": item.lost or None,
        "time_left_ms": None if item.time_left_ms is None else format_duration(item.time_left_ms),
    }


def _rate(per_s: float | None) -> str | None:
    return None if per_s is None else f"{per_s:.1f}" if per_s < 100 else f"{per_s:.0f}"


def _item(group: GroupLag, partition: PartitionLag, time: str) -> LagItem:
    return LagItem(
        group=group.outcome.name,
        topic=partition.tp.topic,
        partition=partition.tp.partition,
        current_offset=partition.committed,
        log_start_offset=partition.log.start if partition.log else None,
        log_end_offset=partition.log.end if partition.log else None,
        **_lag_fields(partition.judgement),
        member_id=partition.member.member_id if partition.member else None,
        host=partition.member.host if partition.member else None,
        client_id=partition.member.client_id if partition.member else None,
        time=time,
        error=partition.error.code.name if partition.error else None,
        message=str(partition.error) if partition.error else None,
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
        uncommitted_partitions=total.uncommitted_partitions,
        uncommitted_records=total.uncommitted_records,
        **_lag_fields(total.judgement),
        time=time,
        error=PARTITIONS_FAILED if total.failed else None,
        message=failed if total.failed else None,
    )


def _lag_fields(judgement: Judgement | None) -> LagFields:
    return LagFields(
        lag=judgement.lag if judgement else None,
        time_lag_ms=judgement.time_lag_ms if judgement else None,
        consumed_per_s=_rounded(judgement.consumed_per_s) if judgement else None,
        produced_per_s=_rounded(judgement.produced_per_s) if judgement else None,
        catches_up=judgement.catches_up if judgement else None,
        catch_up_ms=judgement.catch_up_ms if judgement else None,
        commit_age_ms=judgement.commit_age_ms if judgement else None,
        commit_age_ms_min=judgement.commit_age_ms_min if judgement else None,
        lost=judgement.lost if judgement else None,
        time_left_ms=judgement.time_left_ms if judgement else None,
        verdict=judgement.verdict.name if judgement else None,
        reason=judgement.reason or None if judgement else None,
    )


def _rounded(per_s: float | None) -> float | None:
    return None if per_s is None else round(per_s, 3)


def _failure(group: str | None, outcome: Outcome, time: str) -> LagTotalItem:
    """Return a group or broker with an error."""
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
        uncommitted_partitions=0,
        uncommitted_records=0,
        **_lag_fields(None),
        time=time,
        **outcome_error(outcome),
    )


# Which rows of lag are shown, and in which order.


Sort = Literal["lag", "time", "verdict", "name"]


def selected(items: Iterable[AnyItem], condition: Condition | None, sort: Sort) -> list[AnyItem]:
    """Return the rows with an error, and those that satisfy the condition, in this order."""
    shown = [item for item in items if item.error or condition is None or condition.holds(item)]
    return sorted(shown, key=lambda item: (item.error is None, *_sort_key(item, sort), *_name(item)))


def _sort_key(item: AnyItem, sort: Sort) -> tuple[int, ...]:
    lag = -1 if item.lag is None else item.lag
    match sort:
        case "lag":
            return (-lag,)
        case "time":
            # An unknown time may be a long one.
            unknown_first = item.lag is not None and item.time_lag_ms is None
            return (not unknown_first, -(item.time_lag_ms or 0))
        case "verdict":
            return (-Verdict[item.verdict] if item.verdict else 0, -lag)
        case "name":
            return ()


def _name(item: AnyItem) -> tuple[str, str, int, str]:
    number = item.partition or 0 if isinstance(item, LagItem) else 0
    return item.group or "", item.topic or "", number, item.member_id or ""


def summary(items: Sequence[AnyItem]) -> str:
    """Return one line with the sums of all rows, for the end of a table."""
    groups = len({item.group for item in items if item.group is not None})
    groups += sum(item.groups for item in items if isinstance(item, LagTotalItem) and item.group is None)
    partitions = sum(item.partitions if isinstance(item, LagTotalItem) else 1 for item in items)
    lag = sum(item.lag or 0 for item in items)
    without, records = _uncommitted(items)
    more = [f"{records:,} unread in {counted(without, 'partition')} without a commit"] if without else []
    verdicts = [Verdict[item.verdict] for item in items if item.verdict]
    counts = (f"{verdicts.count(verdict)} {verdict.name}" for verdict in reversed(Verdict) if verdict in verdicts)
    return ", ".join([f"groups: {groups}, partitions: {partitions}, unread records: {lag:,}", *more, *counts])


def _uncommitted(items: Sequence[AnyItem]) -> tuple[int, int]:
    """Return the partitions with records and without a committed offset, and their records."""
    partitions = records = 0
    for item in items:
        if isinstance(item, LagTotalItem):
            partitions += item.uncommitted_partitions
            records += item.uncommitted_records
        elif item.current_offset is None and item.log_end_offset is not None:
            unread = item.log_end_offset - (item.log_start_offset or 0)
            partitions += unread > 0
            records += max(0, unread)
    return partitions, records


verbs = typer.Typer(add_completion=False)

By = Literal["group", "topic", "partition", "member", "all"]
IsolationName = Literal["read_committed", "read_uncommitted"]


@verbs.command(
    "lag",
    cls=QueryCommand,
    epilog=examples(
        "kctl groups lag",
        "kctl groups lag billing --by partition",
        "kctl groups lag --lag '>5m' --check --quiet",
        "kctl groups lag --watch --sort verdict",
    ),
)
@shows(LagTotalItem, LagItem)
def lag(
    ctx: typer.Context,
    names: Names = None,
    *,
    by: Annotated[By, typer.Option("--by", help="What a row is about.")] = "group",
    group_regex: GroupRegex = None,
    topic: Topics = None,
    topic_regex: TopicRegex = None,
    condition: LagCondition = None,
    sort: Annotated[Sort, typer.Option("--sort", help="Largest or most severe first, or by name.")] = "lag",
    isolation: Annotated[
        IsolationName,
        typer.Option(
            "--isolation-level", help="Whether the end is the high watermark, or the end of the committed transactions."
        ),
    ] = "read_uncommitted",
    window: Annotated[
        Duration,
        typer.Option(
            "--window", parser=Duration.within("1s"), help="Period for rates, and in which readers must make progress."
        ),
    ] = Duration("5m"),
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit with status 3 if a verdict is not OK; with --lag, if there is such a row."),
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until interrupted.")] = False,
    interval: Annotated[
        Duration,
        typer.Option("--interval", parser=Duration.within("100ms"), help="With --watch: time between two rounds."),
    ] = Duration("5s"),
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", metavar="N", help="With --watch: end after N rounds.", min=1, max=INT32_MAX),
    ] = None,
) -> ExitStatus:
    """Show how far consumer groups are behind, in records and in time, and whether they catch up.

    TIME-LAG is the age of the first unread record.  READ/S is how fast the group reads, from its commits of the last
    --window in __consumer_offsets; NEW/S is how fast others write.  Verdicts, from the least severe to the most severe:
    OK; WARN (records wait, and the group is not catching up); REWOUND (the offset was set back); STALLED (there is a
    reader, and it makes no progress); STOPPED (no member reads, and nothing is committed); LOSING (unread records
    were deleted or are about to be, after TIME-LEFT).  docs/lag.md has the exact rules.
    """
    run: Invocation = ctx.obj
    required = condition
    scope = parse_scope(topic, topic_regex, all_topics=not topic and topic_regex is None)
    if watch and run.console.format.is_document:
        chosen_format = run.console.format.value
        raise UsageError(f"--format {chosen_format} is one document, which --watch never ends; use --format jsonl")
    level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
    topics = topic_pattern(topic_regex)
    matching = None if topics is None else topics.select
    reader = LagReader(LagOptions(isolation=level, window_ms=window, topics=scope, matching=matching))
    groups = group_pattern(names, group_regex)
    view = _View(run, reader, names, groups, None if by == "partition" else Grouping(by), required, sort, check=check)
    if not watch:
        return view.show(run.on_brokers(view.read))
    return run.on_cluster_concurrently(lambda client: view.repeat(client, interval, rounds))


class _View:
    """Reads and shows the lag, once or repeatedly."""

    def __init__(
        self,
        run: Invocation,
        reader: LagReader,
        names: list[str] | None,
        pattern: NamePattern | None,
        grouping: Grouping | None,
        condition: Condition | None,
        sort: Sort,
        *,
        check: bool,
    ) -> None:
        self._run = run
        self._reader = reader
        self._names = names
        self._pattern = pattern
        self._grouping = grouping
        self._condition = condition
        self._sort = sort
        self._check = check
        self._problem = ""
        self._are_topics_checked = False

    async def read(self, client: ClusterClient) -> list[AnyItem]:
        """Return the rows to show.  Raises ClusterUnreachable."""
        group_ids, failed = await selected_groups(self._run, client, self._names, self._pattern)
        now_ms = round(time.time() * 1000)
        groups = await self._reader.read(client, group_ids, now_ms)
        await self._check_topics(client, groups)
        problem = self._reader.history.problem
        if problem and problem != self._problem and group_ids:
            self._problem = problem
            self._run.console.note(f"rates of consuming and ages of commits are unknown: __consumer_offsets: {problem}")
        items = lag_items(groups, failed, self._grouping, format_time(now_ms) or "")
        return selected(items, self._condition, self._sort)

    def show(self, items: list[AnyItem]) -> ExitStatus:
        """Show the rows; return the status that they mean."""
        console = self._run.console
        columns = LagItem if self._grouping is None else columns_of(LagTotalItem, *_OMITTED[self._grouping])
        console.show(columns, items, rows=[lag_row(item) for item in items])
        if console.format is Format.TABLE:
            console.note(summary(items))
        status = self._run.status_of(items)
        if status is ExitStatus.DONE and self._check and self._is_unmet(items):
            return ExitStatus.UNMET
        return status

    async def repeat(self, client: ClusterClient, interval_ms: int, rounds: int | None) -> ExitStatus:
        """Show the rows again after each interval; the status is that of the last round."""
        console = self._run.console
        status, done = ExitStatus.DONE, 0
        while True:
            try:
                with client.one_deadline():
                    items = await self.read(client)
            except ClusterUnreachable as error:
                if not done:
                    raise
                console.warn(str(error))
                status = ExitStatus.UNREACHABLE
            else:
                console.clear_screen()
                status = self.show(items)
            console.flush()
            done += 1
            if done == rounds:
                return status
            await client.transport.sleep(interval_ms)

    async def _check_topics(self, client: ClusterClient, groups: list[GroupLag]) -> None:
        """Raise ApiError for a named topic or partition that no group has offsets of and that does not exist."""
        scope = self._reader.options.topics
        if scope is None or self._are_topics_checked:
            return
        read = {partition.tp for group in groups for partition in group.partitions}
        read_topics = {tp.topic for tp in read}
        unread = {
            topic: numbers
            for topic, numbers in scope.items()
            if topic not in read_topics or any(TopicPartition(topic, number) not in read for number in numbers or ())
        }
        await check_partitions(client, unread)
        self._are_topics_checked = True  # With --watch it may be deleted later.

    def _is_unmet(self, items: list[AnyItem]) -> bool:
        return bool(items) if self._condition else any(item.verdict != "OK" for item in items)
