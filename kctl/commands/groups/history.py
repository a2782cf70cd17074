"""`kctl groups history`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.group_history import read_group_records
from kctl.admin.groups import look_up_group
from kctl.admin.offsets import check_partitions
from kctl.admin.past_commits import PastCommit, PastCommits
from kctl.commands.command import examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.groups.options import TopicRegex
from kctl.commands.groups.selection import topic_pattern
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.rows import known
from kctl.commands.shown import shows
from kctl.commands.timed_search import NamePattern
from kctl.commands.times import parse_time_ms
from kctl.commands.values import format_time
from kctl.console import Column
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.limits import GROUP_HISTORY_COMMITS_MAX
from kctl.quantities import counted

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)

COLUMNS = (
    Column("time"),
    Column("topic"),
    Column("partition", numeric=True),
    Column("offset", numeric=True),
    Column("change"),
    Column("generation", numeric=True, is_rare=True),
    Column("client_id", is_rare=True),
    Column("host", is_rare=True),
    Column("metadata", wraps=True, is_rare=True),
)


class CommitRow(NamedTuple):
    """A commit of a group, or the deletion of a committed offset."""

    group: str
    time_ms: int
    time: str | None
    topic: str
    partition: int
    offset: int | None
    leader_epoch: int | None
    metadata: str | None
    change: str
    generation: int | None
    member_id: str | None
    client_id: str | None
    host: str | None


@app.command(
    "history",
    cls=QueryCommand,
    epilog=examples(
        "kctl groups history billing",
        "kctl groups history billing --topic orders --since -2h --limit 20",
        "kctl groups history billing --since 2026-11-21T09:00:00Z --format jsonl",
    ),
)
@shows(CommitRow)
def history(
    ctx: typer.Context,
    group: Annotated[str, typer.Argument(help="Group whose commits to show.", metavar="GROUP")],
    *,
    topic: Annotated[list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")] = None,
    topic_regex: TopicRegex = None,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only commits at or after that time: RFC 3339 (UTC without a zone), a date, 10 digits of epoch seconds"
            " or 13 of milliseconds, or a duration back from now such as -1h.",
        ),
    ] = "-1d",
    limit: Annotated[
        int,
        typer.Option("--limit", metavar="N", help="Only the latest N commits.", min=1, max=GROUP_HISTORY_COMMITS_MAX),
    ] = GROUP_HISTORY_COMMITS_MAX,
) -> ExitStatus:
    """Show the commits of a group in the order in which they were made, from the records of __consumer_offsets.

    Compaction removes old commits that later ones have replaced, so that the history is complete only for the latest
    part of the log.  CLIENT_ID and HOST are those of the member to which the partition was assigned at that time;
    without them, the commit was made by a client that is not a member, such as an admin's reset, or the last rebalance
    was before --since.  CHANGE is 'deleted' when a committed offset was deleted or has expired.  A group or
    topic that does not exist and of which no commit is found is an error.
    """
    run: Invocation = ctx.obj
    since_ms = parse_time_ms(since, now_ms=round(time.time() * 1000))
    pattern = topic_pattern(topic_regex)
    if topic and pattern is not None:
        raise UsageError("give --topic or --topic-regex, not both")
    matches = None if pattern is None else _matching(pattern)
    past = PastCommits(frozenset(topic or ()), matches, since_ms, limit)

    async def read(client: ClusterClient) -> bool:
        is_complete = await read_group_records(client, group, past.add, since_ms=since_ms)
        if not past.has_any:
            await _check(client, group, since_ms)
        shown = {one.tp.topic for one in past.commits}
        await check_partitions(client, {name: None for name in topic or () if name not in shown})
        return is_complete

    is_complete = run.on_brokers(read)
    if not is_complete:
        run.console.warn("the history is too long to be read as a whole, and its end is missing: give a later --since")
    if past.omitted:
        run.console.warn(f"{counted(past.omitted, 'older commit is', 'older commits are')} left out by --limit")
    if not past.commits:
        run.console.note(
            f"no commit of group '{group}' since {format_time(since_ms)} was found; --since goes back further"
        )
    run.console.show(COLUMNS, [_row(group, one) for one in past.commits])
    return ExitStatus.DONE if is_complete else ExitStatus.FAILED


async def _check(client: ClusterClient, group: str, since_ms: int) -> None:
    """Raises ApiError for a group that does not exist; its commits may have been before `since_ms`."""
    if (await look_up_group(client, group)).outcome.error is ErrorCode.GROUP_ID_NOT_FOUND:
        text = f"group '{group}' does not exist, and no commit since {format_time(since_ms)} was found"
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{text}; --since goes back further")


def _matching(pattern: NamePattern) -> Callable[[str], bool]:
    """Whether a name matches; each name is compared once."""

    @functools.lru_cache(GROUP_HISTORY_COMMITS_MAX)
    def matches(name: str) -> bool:
        return bool(pattern.select([name]))

    return matches


def _row(group: str, one: PastCommit) -> CommitRow:
    committed, who = one.committed, one.committer
    return CommitRow(
        group=group,
        time_ms=one.time_ms,
        time=format_time(one.time_ms),
        topic=one.tp.topic,
        partition=one.tp.partition,
        offset=committed.offset if committed else None,
        leader_epoch=known(committed.leader_epoch) if committed else None,
        metadata=committed.metadata if committed else None,
        change="committed" if committed else "deleted",
        generation=one.generation,
        member_id=who.member_id if who else None,
        client_id=who.client_id if who else None,
        host=who.host if who else None,
    )
