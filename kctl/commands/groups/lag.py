"""`kctl groups lag`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kctl.admin.lag import LagOptions, LagReader
from kctl.admin.lag_totals import Grouping
from kctl.admin.offsets import check_partitions
from kctl.client.list_offsets import IsolationLevel
from kctl.commands.command import examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.groups import lag_rows, lag_selection
from kctl.commands.groups.lag_selection import Sort
from kctl.commands.groups.options import GroupRegex, Names, TopicRegex, Topics
from kctl.commands.groups.reset import parse_scope
from kctl.commands.groups.selection import group_pattern, selected_groups, topic_pattern
from kctl.commands.invocation import Invocation
from kctl.commands.lag_condition import parse_condition
from kctl.commands.query import QueryCommand
from kctl.commands.shown import shows
from kctl.commands.times import parse_duration_ms
from kctl.commands.values import format_time
from kctl.console import Format
from kctl.errors import ClusterUnreachable, UsageError
from kctl.integers import INT32_MAX
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.group_lag import GroupLag
    from kctl.client.cluster import ClusterClient
    from kctl.commands.groups.lag_rows import AnyItem
    from kctl.commands.lag_condition import Condition
    from kctl.commands.timed_search import NamePattern

app = typer.Typer(add_completion=False)

By = Literal["group", "topic", "partition", "member", "all"]
IsolationName = Literal["read_committed", "read_uncommitted"]
INTERVAL_MS_MIN = 100


@app.command(
    "lag",
    cls=QueryCommand,
    epilog=examples(
        "kctl groups lag",
        "kctl groups lag billing --by partition",
        "kctl groups lag --lag '>5m' --check --quiet",
        "kctl groups lag --watch --sort verdict",
    ),
)
@shows(lag_rows.LagTotalItem, lag_rows.LagItem)
def lag(
    ctx: typer.Context,
    names: Names = None,
    *,
    by: Annotated[By, typer.Option("--by", help="What a row is about.")] = "group",
    group_regex: GroupRegex = None,
    topic: Topics = None,
    topic_regex: TopicRegex = None,
    condition: Annotated[
        str | None,
        typer.Option(
            "--lag", metavar="CONDITION", help="Only rows with this lag, such as '>1000' in records or '>5m' in time."
        ),
    ] = None,
    sort: Annotated[Sort, typer.Option("--sort", help="Largest or most severe first, or by name.")] = "lag",
    isolation: Annotated[
        IsolationName,
        typer.Option(
            "--isolation", help="Whether the end is the high watermark, or the end of the committed transactions."
        ),
    ] = "read_uncommitted",
    window: Annotated[
        str,
        typer.Option("--window", metavar="DURATION", help="Period for rates, and in which readers must make progress."),
    ] = "5m",
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit with status 3 if a verdict is not OK; with --lag, if there is such a row."),
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until interrupted.")] = False,
    interval: Annotated[
        str, typer.Option("--interval", metavar="DURATION", help="With --watch: time between two rounds.")
    ] = "5s",
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
    required = parse_condition(condition)
    scope = parse_scope(topic, topic_regex, all_topics=not topic and topic_regex is None)
    window_ms = parse_duration_ms(window)
    interval_ms = parse_duration_ms(interval)
    if window_ms < 1000 or interval_ms < INTERVAL_MS_MIN:
        raise UsageError(f"--window is at least 1s, and --interval at least {INTERVAL_MS_MIN}ms")
    if watch and run.console.format.is_document:
        chosen_format = run.console.format.value
        raise UsageError(f"--format {chosen_format} is one document, which --watch never ends; use --format jsonl")
    level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
    topics = topic_pattern(topic_regex)
    matching = None if topics is None else topics.select
    reader = LagReader(LagOptions(isolation=level, window_ms=window_ms, topics=scope, matching=matching))
    groups = group_pattern(names, group_regex)
    view = _View(run, reader, names, groups, None if by == "partition" else Grouping(by), required, sort, check=check)
    if not watch:
        return view.show(run.on_brokers(view.read))
    return run.on_cluster_concurrently(lambda client: view.repeat(client, interval_ms, rounds))


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
        """The rows to show.  Raises ClusterUnreachable."""
        group_ids, failed = await selected_groups(self._run, client, self._names, self._pattern)
        now_ms = round(time.time() * 1000)
        groups = await self._reader.read(client, group_ids, now_ms)
        await self._check_topics(client, groups)
        problem = self._reader.history.problem
        if problem and problem != self._problem and group_ids:
            self._problem = problem
            self._run.console.note(f"rates of consuming and ages of commits are unknown: __consumer_offsets: {problem}")
        items = lag_rows.lag_items(groups, failed, self._grouping, format_time(now_ms) or "")
        return lag_selection.selected(items, self._condition, self._sort)

    def show(self, items: list[AnyItem]) -> ExitStatus:
        """Shows the rows; returns the status that they mean."""
        console = self._run.console
        columns = lag_rows.PARTITION_COLUMNS if self._grouping is None else lag_rows.TOTAL_COLUMNS[self._grouping]
        console.show(columns, items, rows=[lag_rows.lag_row(item) for item in items])
        if console.format is Format.TABLE:
            console.note(lag_selection.summary(items))
        status = self._run.status_of(items)
        if status is ExitStatus.DONE and self._check and self._is_unmet(items):
            return ExitStatus.UNMET
        return status

    async def repeat(self, client: ClusterClient, interval_ms: int, rounds: int | None) -> ExitStatus:
        """Shows the rows again after each interval; the status is that of the last round."""
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
        """Raises ApiError for a named topic or partition that no group has offsets of and that does not exist."""
        scope = self._reader.options.topics
        if scope is None or self._are_topics_checked:
            return
        read = {one.tp for group in groups for one in group.partitions}
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
