"""`kctl groups`: restore, history."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.groups.groups import look_up_group
from kctl.admin.groups.history import OffsetsAt, PastCommit, PastCommits, read_group_records
from kctl.admin.groups.offsets import parse_document
from kctl.admin.groups.resets import Scenario, Target, plan_resets
from kctl.admin.groups.undo_files import backups_of
from kctl.admin.topics.offsets import check_partitions
from kctl.client.consuming.positions import Divergence, check_positions
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Time, moment_ms
from kctl.commands.frame.options.values import format_time
from kctl.commands.frame.output.rows import known
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.commands.groups import resets as group_reset
from kctl.commands.groups.resets import back_up, backup_folder, identities
from kctl.commands.groups.selection import (
    NAMED_MAX,
    AcceptLost,
    BackupDir,
    DryRun,
    Execute,
    NoBackup,
    ResetRow,
    TopicRegex,
    Topics,
    matching_topics,
    named,
    reset_row,
    topic_pattern,
    warn_of_clamped,
    warn_of_partitions,
    warn_of_unsaved,
)
from kctl.commands.reading.searches import NamePattern
from kctl.errors import ApiError, ErrorCode, KctlError, UsageError
from kctl.limits import GROUP_HISTORY_COMMITS_MAX
from kctl.model import TopicPartition
from kctl.output.console import JSON_ONLY, Column
from kctl.output.quantities import counted
from kctl.system.user_files import read_text

if TYPE_CHECKING:
    from kctl.admin.groups.offsets import GroupOffsets, OffsetDocument
    from kctl.admin.groups.resets import Reset
    from kctl.client.cluster import ClusterClient
    from kctl.client.consuming.committed_offsets import CommittedOffset
    from kctl.client.outcome import Outcome
    from kctl.lag.facts import GroupDescription


# Commits saved offsets: what `kctl groups restore` and `import` have in common.


class Origin(NamedTuple):
    """Where saved offsets are from."""

    is_same_cluster: bool
    """Whether they are of this cluster; others are of copies of the topics, which have other ids and leader epochs."""
    topic_ids: Mapping[str, str]
    """The ids of the topics when the offsets were saved, as far as they are known."""


def origin_of(run: Invocation, document: OffsetDocument) -> Origin:
    """Return the origin of the offsets in a file."""
    cluster_id = run.on_brokers(lambda client: client.metadata([])).cluster_id
    return Origin(document.cluster_id is not None and document.cluster_id == cluster_id, document.topic_ids)


async def _lost(client: ClusterClient, saved: GroupOffsets, resets: Collection[Reset], origin: Origin) -> list[str]:
    """Return the offsets whose records before them are of another topic, or are not in the log any more, with the
    reason.
    """
    _, ids = await identities(client, saved)
    changed = {name for name, topic_id in origin.topic_ids.items() if ids.get(name, topic_id) != topic_id}
    lost = {
        (group, tp): f"{group}, {tp}: the topic was deleted and created again since offset {commit.offset} was saved"
        for group, offsets in saved.items()
        for tp, commit in offsets.items()
        if tp.topic in changed
    }
    for group, offsets in saved.items():
        for tp, outcome in (
            await check_positions(client, {tp: offset.position for tp, offset in offsets.items()})
        ).items():
            if isinstance(outcome, Divergence):
                lost.setdefault((group, tp), f"{group}, {outcome}")
    for reset in resets:
        if reset.held is not None and reset.unclamped is not None and reset.unclamped > reset.held.end:
            text = f"{reset.group}, {reset.tp}: the saved offset {reset.unclamped} is after the end, {reset.held.end}"
            lost.setdefault((reset.group, reset.tp), text)
    return [lost[key] for key in sorted(lost)]


def in_scope(
    saved: GroupOffsets, topics: list[str] | None, topic_regex: str | None
) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """Return the offsets that --topic or --topic-regex selects; all without them.

    Raises KctlError for a named topic or partition without any, if none is left, or if no topic matches.
    """
    scope: Mapping[str, list[int] | None] | None = None
    if (pattern := topic_pattern(topic_regex)) is not None:
        scope = dict.fromkeys(
            matching_topics(pattern, (tp.topic for offsets_of_group in saved.values() for tp in offsets_of_group))
        )
    if topics or scope is not None:
        scope = group_reset.parse_scope(topics, topic_regex, all_topics=False) or scope
    chosen = {
        group: {
            tp: offset
            for tp, offset in offsets.items()
            if scope is None or (tp.topic in scope and tp.partition in (scope[tp.topic] or [tp.partition]))
        }
        for group, offsets in saved.items()
    }
    left = {group: offsets for group, offsets in chosen.items() if offsets}
    absent = [] if scope is None else _absent(scope, {tp for offsets in left.values() for tp in offsets})
    if absent:
        raise KctlError(f"there are no saved offsets of these groups and topics: {', '.join(absent)}")
    if not left:
        raise KctlError("there are no saved offsets of these groups and topics")
    return left


def _absent(scope: Mapping[str, list[int] | None], present: Collection[TopicPartition]) -> list[str]:
    """Return the topics and partitions that are named and not present."""
    topics = {tp.topic for tp in present}
    absent = [topic for topic, numbers in scope.items() if numbers is None and topic not in topics]
    named = [TopicPartition(topic, number) for topic, numbers in scope.items() for number in numbers or ()]
    return absent + [f"{tp.topic}:{tp.partition}" for tp in named if tp not in present]


def restore_offsets(
    run: Invocation,
    saved: GroupOffsets,
    reason: str,
    origin: Origin,
    *,
    accepts_lost: bool,
    status: str,
    execute: bool,
    no_backup: bool,
    backup_dir: str | None,
) -> ExitStatus:
    """Commit the offsets, or, without `execute`, show what would be committed.

    Raises Refused if a group has members, if the records before an offset are not in the log any more and this is not
    accepted, or if the offsets cannot be backed up.  Nothing is committed unless all partitions exist.
    """
    target = Target(
        Scenario.FILE,
        file={group: {tp: offset.offset for tp, offset in offsets.items()} for group, offsets in saved.items()},
    )

    async def plan(client: ClusterClient) -> tuple[list[GroupDescription], list[Reset], list[str]]:
        groups = await group_reset.look_up(client, sorted(saved))
        group_reset.refuse_active(groups)
        resets = await plan_resets(client, groups, target, None)
        return groups, resets, await _lost(client, saved, resets, origin) if origin.is_same_cluster else []

    groups, resets, lost = run.on_brokers(plan)
    if lost and not accepts_lost:
        raise Refused(
            f"saved offsets are not of the records that the topics have now: {named(lost)}: --accept-lost restores "
            "them all the same, --topic selects others, 'kctl groups reset-offsets' sets other offsets"
        )
    for reason_of_loss in lost[:NAMED_MAX]:
        run.console.warn(reason_of_loss)
    warn_of_clamped(run, resets)
    warn_of_unsaved(run, groups, saved)
    outcomes: dict[tuple[str, TopicPartition], Outcome] = {}
    if execute and all(reset.outcome.is_done for reset in resets):
        if not no_backup:
            back_up(run, groups, reason, backup_dir=backup_dir)
        outcomes = run.on_brokers(lambda client: group_reset.commit(client, groups, resets, saved))
    shown = status if outcomes else f"would be {status}"
    rows = [
        reset_row(planned, shown, outcomes.get((planned.group, planned.tp)) if outcomes else None) for planned in resets
    ]
    run.console.show(ResetRow, rows)
    if not execute:
        run.console.note("nothing was changed; give --yes to commit these offsets")
    return run.status_of(rows)


# `kctl groups restore`.


verbs = typer.Typer(add_completion=False)


@verbs.command(
    "restore",
    cls=ChangingCommand,
    epilog=examples(
        "kctl groups restore billing    (shows what the latest backup would restore)",
        "kctl groups restore billing --yes",
        "kctl groups restore billing --at -1h --topic orders --yes",
        "kctl groups restore billing --backup before.json --yes",
    ),
)
@shows(ResetRow)
def restore(
    ctx: typer.Context,
    group: Annotated[str, typer.Argument(help="Group whose offsets to restore.", metavar="GROUP")],
    *,
    at: Annotated[
        Time | None,
        typer.Option(
            "--at",
            parser=Time,
            help="Restore the offsets that were committed at that time, from the records of __consumer_offsets: RFC"
            " 3339 (UTC without a zone), a date, 10 digits of epoch seconds or 13 of milliseconds, or a duration back"
            " from now such as -1h.",
        ),
    ] = None,
    backup: Annotated[
        str | None, typer.Option("--backup", metavar="FILE", help="Restore the offsets in this backup or export.")
    ] = None,
    topic: Topics = None,
    topic_regex: TopicRegex = None,
    execute: Execute = False,
    dry_run: DryRun = False,
    accept_lost: AcceptLost = False,
    no_backup: NoBackup = False,
    backup_dir: BackupDir = None,
) -> ExitStatus:
    """Restore committed offsets of a group without members, from a backup or from the history of the cluster.

    'kctl groups reset-offsets', 'delete-offsets', 'delete' and 'import' save a backup before they change anything.
    Without --at and --backup, the latest backup of the group is used.  Nothing is changed without --yes, which also
    saves a backup first.  A group with members is refused with exit status 5.

    --at finds what compaction has left: partitions whose commits of that time have been replaced and removed are
    reported and keep their offsets.  An offset before the start of a partition is moved there, with a warning.

    An offset whose records are not in the log any more is refused with exit status 5, unless --accept-lost is given:
    the topic was deleted and created again since (a backup has its id), the log was truncated by an unclean leader
    election (found by the leader epoch of the commit, KIP-320), or it ends before the offset.
    """
    run: Invocation = ctx.obj
    execute = execute and not dry_run
    if at is not None and backup is not None:
        raise UsageError("--at and --backup cannot be combined")
    if at is not None:
        if at > moment_ms():
            raise UsageError(f"--at {at.text} is in the future: {format_time(at)}")
        saved, origin = _committed_at(run, group, at), Origin(True, {})
    elif backup is not None:
        document = _in_file(group, backup)
        saved, origin = document.groups[group], origin_of(run, document)
    else:
        document = _latest(run, group, backup_dir)
        saved, origin = document.groups[group], origin_of(run, document)
    return restore_offsets(
        run,
        in_scope({group: saved}, topic, topic_regex),
        "restore",
        origin,
        accepts_lost=accept_lost,
        status="restored",
        execute=execute,
        no_backup=no_backup,
        backup_dir=backup_dir,
    )


def _committed_at(run: Invocation, group: str, time_ms: int) -> Mapping[TopicPartition, CommittedOffset]:
    found = OffsetsAt(time_ms)
    is_complete = run.on_brokers(lambda client: read_group_records(client, group, found.add))
    if not is_complete or found.is_excessive:
        raise Refused("the history of the group is too long to be read as a whole: restore a backup with --backup")
    then = format_time(time_ms)
    warn_of_partitions(
        run,
        {
            f"there is no commit at or before {then}, or compaction has removed it; what is committed now stays": (
                found.unknown
            ),
            f"the committed offset had been deleted before {then}; what is committed now stays": sorted(
                found.offsets.keys() - found.committed.keys()
            ),
        },
    )
    if not found.committed:
        raise KctlError(f"no offsets of group '{group}' are known that were committed at {format_time(time_ms)}")
    return found.committed


def _in_file(group: str, path: str) -> OffsetDocument:
    text = read_text(path)
    try:
        document = parse_document(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    if group not in document.groups:
        present = ", ".join(sorted(document.groups)) or "none"
        raise UsageError(f"{path} has no offsets of group '{group}', but of {present}")
    return document


def _latest(run: Invocation, group: str, backup_dir: str | None) -> OffsetDocument:
    cluster_id = run.on_brokers(lambda client: client.metadata([])).cluster_id
    folder = backup_folder(backup_dir, cluster_id)
    for path, document in backups_of(folder, group):
        run.console.note(f"restoring {path}, saved before {document.reason} at {document.created}")
        return document
    raise UsageError(f"{folder} has no backup of group '{group}': give --at or --backup")


# `kctl groups history`.


class CommitRow(NamedTuple):
    """A commit of a group, or the deletion of a committed offset."""

    group: Annotated[str, JSON_ONLY]
    time_ms: Annotated[int, JSON_ONLY]
    time: str | None
    topic: str
    partition: int
    offset: int | None
    leader_epoch: Annotated[int | None, JSON_ONLY]
    metadata: Annotated[str | None, Column(wraps=True, is_rare=True, after="host")]
    change: str
    generation: Annotated[int | None, Column(is_rare=True)]
    member_id: Annotated[str | None, JSON_ONLY]
    client_id: Annotated[str | None, Column(is_rare=True)]
    host: Annotated[str | None, Column(is_rare=True)]


@verbs.command(
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
        Time | None,
        typer.Option(
            "--since",
            parser=Time,
            help="Only commits at or after that time: RFC 3339 (UTC without a zone), a date, 10 digits of epoch seconds"
            " or 13 of milliseconds, or a duration back from now such as -1h."
            "  Default: -1d.",
        ),
    ] = None,
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
    pattern = topic_pattern(topic_regex)
    if topic and pattern is not None:
        raise UsageError("give --topic or --topic-regex, not both")
    matches = None if pattern is None else _matching(pattern)
    since_ms = Time("-1d") if since is None else since
    past = PastCommits(frozenset(topic or ()), matches, since_ms, limit)

    async def read(client: ClusterClient) -> bool:
        is_complete = await read_group_records(client, group, past.add, since_ms=since_ms)
        if not past.has_any:
            await _check(client, group, since_ms)
        shown = {commit.tp.topic for commit in past.commits}
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
    run.console.show(CommitRow, [_row(group, commit) for commit in past.commits])
    return ExitStatus.DONE if is_complete else ExitStatus.FAILED


async def _check(client: ClusterClient, group: str, since_ms: int) -> None:
    """Raise ApiError for a group that does not exist; its commits may have been before `since_ms`."""
    if (await look_up_group(client, group)).outcome.error is ErrorCode.GROUP_ID_NOT_FOUND:
        text = f"group '{group}' does not exist, and no commit since {format_time(since_ms)} was found"
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{text}; --since goes back further")


def _matching(pattern: NamePattern) -> Callable[[str], bool]:
    """Return whether a name matches; each name is compared once."""

    @functools.lru_cache(GROUP_HISTORY_COMMITS_MAX)
    def matches(name: str) -> bool:
        return bool(pattern.select([name]))

    return matches


def _row(group: str, commit: PastCommit) -> CommitRow:
    committed, who = commit.committed, commit.committer
    return CommitRow(
        group=group,
        time_ms=commit.time_ms,
        time=format_time(commit.time_ms),
        topic=commit.tp.topic,
        partition=commit.tp.partition,
        offset=committed.offset if committed else None,
        leader_epoch=known(committed.leader_epoch) if committed else None,
        metadata=committed.metadata if committed else None,
        change="committed" if committed else "deleted",
        generation=commit.generation,
        member_id=who.member_id if who else None,
        client_id=who.client_id if who else None,
        host=who.host if who else None,
    )
