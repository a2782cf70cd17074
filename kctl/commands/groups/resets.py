"""`kctl groups`: backup, reset-offsets, reset."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.groups.groups import look_up_groups
from kctl.admin.groups.offsets import (
    OffsetDocument,
    Outcomes,
    alter_share_offsets,
    commit_offsets,
    committed_of,
    format_offsets,
    parse_offsets,
)
from kctl.admin.groups.resets import Reset, Scenario, Target, plan_resets
from kctl.admin.groups.undo_files import save_backup
from kctl.admin.placement.throttling import folder_of
from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import SignedDuration, Time, moment_ms
from kctl.commands.frame.options.values import check_time_ms, format_time, parse_partitions
from kctl.commands.frame.output.shown import shows
from kctl.commands.groups.selection import (
    All,
    BackupDir,
    DryRun,
    Execute,
    GroupRegex,
    NoBackup,
    ResetRow,
    TopicRegex,
    Topics,
    all_selected_groups,
    group_pattern,
    reset_row,
    topic_pattern,
    warn_of_clamped,
    with_matching_topics,
)
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.lag.facts import OTHER_TYPES, SHARE
from kctl.model import ZERO_UUID, TopicPartition, uuid_text
from kctl.output.quantities import INT64_MAX
from kctl.system.user_files import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kctl.admin.groups.offsets import GroupOffsets
    from kctl.client.cluster import ClusterClient
    from kctl.client.outcome import Outcome
    from kctl.lag.facts import GroupDescription


# Saves the committed offsets of groups before a command changes them.


HINT = "; give another --backup-dir, or --no-backup"


def backup_folder(backup_dir: str | None, cluster_id: str | None) -> Path:
    """Return the folder with the backups of one cluster."""
    if backup_dir:
        folder = Path(backup_dir).expanduser().absolute()
    else:
        home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        folder = Path(home).expanduser() / "kctl" / "offsets"
    return folder_of(folder, cluster_id)


def unreadable(groups: Iterable[GroupDescription]) -> dict[str, Outcome]:
    """Return the errors of the groups that exist and whose offsets cannot be read, such as for lack of a permission."""
    return {
        group.outcome.name: group.outcome
        for group in groups
        if not (group.outcome.is_done or group.outcome.error is ErrorCode.GROUP_ID_NOT_FOUND)
        and group.type not in OTHER_TYPES
    }


def back_up(run: Invocation, groups: Sequence[GroupDescription], reason: str, *, backup_dir: str | None) -> None:
    """Save the offsets of the groups, if they have any.  Raises Refused if that fails.

    None of them is `unreadable`.  Share groups, which no OffsetCommit would restore, and groups that brokers before
    Kafka 4.1 do not describe are left out with a warning.
    """
    for group in groups:
        if group.type == SHARE or (group.type in OTHER_TYPES and not group.outcome.is_done):
            run.console.warn(f"group '{group.outcome.name}' is a {group.type} group: its offsets are not backed up")
    offsets = committed_of(group for group in groups if group.type != SHARE)
    if not offsets:
        return
    cluster_id, topic_ids = run.on_brokers(lambda client: identities(client, offsets))
    document = OffsetDocument(cluster_id, now_text(), reason, offsets, topic_ids)
    try:
        path = save_backup(backup_folder(backup_dir, cluster_id), document)
    except OSError as error:
        raise Refused(f"the committed offsets cannot be backed up: {error.filename}: {error.strerror}{HINT}") from None
    run.console.note(f"backup of the committed offsets: {path}")


async def identities(client: ClusterClient, offsets: GroupOffsets) -> tuple[str | None, dict[str, str]]:
    """Return the id of the cluster, and those of the topics of the offsets where brokers have them."""
    metadata = await client.metadata({tp.topic for of_group in offsets.values() for tp in of_group})
    return metadata.cluster_id, {
        topic.name: uuid_text(topic.topic_id) for topic in metadata.topics.values() if topic.topic_id != ZERO_UUID
    }


def now_text() -> str:
    """Return the time of a new document."""
    return format_time(round(time.time() * 1000)) or ""


# Parsing, checks, warnings and output of `kctl groups reset-offsets`.


MEMBERS_NAMED_MAX = 10
AWAY = ", has left, but is static: its place is kept until its session times out"


def parse_scope(
    topics: Sequence[str] | None, topic_regex: str | None = None, *, all_topics: bool
) -> dict[str, list[int] | None] | None:
    """Return the selected partitions by topic; None for all partitions, or for all topics and --topic-regex.

    Raises UsageError.
    """
    if bool(topics) + all_topics + (topic_regex is not None) != 1:
        raise UsageError("give --topic TOPIC[:N,N-N], --topic-regex or --all-topics")
    if not topics:
        return None
    scope: dict[str, list[int] | None] = {}
    for text in topics:
        name, colon, numbers = text.partition(":")
        if not name:
            raise UsageError(f"'{text}' names no topic; use TOPIC or TOPIC:0,1,2")
        partitions = parse_partitions(numbers) if colon else None
        before = scope.get(name, [])
        scope[name] = None if partitions is None or before is None else sorted({*before, *partitions})
    return scope


def parse_target(
    groups: Sequence[str],
    *,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: Time | None,
    by_duration: SignedDuration | None,
    from_file: str | None,
) -> Target:
    """Return the selected scenario.  Raises UsageError unless there is exactly one."""
    targets: list[Target] = []
    for is_given, scenario in (
        (to_earliest, Scenario.EARLIEST),
        (to_latest, Scenario.LATEST),
        (to_current, Scenario.CURRENT),
    ):
        if is_given:
            targets.append(Target(scenario))
    if to_offset is not None:
        targets.append(Target(Scenario.OFFSET, to_offset))
    if shift_by is not None:
        targets.append(Target(Scenario.SHIFT, shift_by))
    if to_datetime is not None:
        targets.append(Target(Scenario.TIME, to_datetime))
    if by_duration is not None:
        targets.append(Target(Scenario.TIME, check_time_ms(moment_ms() - by_duration, by_duration.text)))
    if from_file is not None:
        targets.append(Target(Scenario.FILE, file=_read(from_file, groups)))
    if len(targets) != 1:
        raise UsageError(
            "give exactly one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, "
            "--to-datetime, --by-duration and --from-file"
        )
    return targets[0]


def _read(path: str, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    text = read_text(path)
    try:
        return parse_offsets(text, groups)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def groups_in_file(run: Invocation, groups: Sequence[str], target: Target, *, all_: bool) -> list[str]:
    """Return the groups among these that are in the file.  Raises UsageError if none is."""
    listed = [group for group in groups if target.file[group]]
    if not listed:
        raise UsageError("the file has no offsets of " + ("any group" if all_ else ", ".join(groups)))
    for group in groups if not all_ else ():
        if group not in listed:
            run.console.warn(f"the file has no offsets of {group}")
    return listed


async def look_up(client: ClusterClient, names: Iterable[str]) -> list[GroupDescription]:
    """Return the groups; one that does not exist has no members and no offsets.  Raises ApiError for other errors."""
    found = await look_up_groups(client, list(names))
    for group in found:
        if not group.outcome.is_done and group.outcome.error is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise ApiError(group.outcome.error, f"{group.outcome.name}: {group.outcome.message}")
    return found


def refuse_active(groups: Iterable[GroupDescription]) -> None:
    """Raise Refused if a group has members: they would continue from their positions and overwrite the new offsets."""
    problems = []
    for group in groups:
        if not group.members:
            continue
        names = [
            f"{member.member_id} ({member.host}{AWAY if member.is_away else ''})"
            for member in sorted(group.members, key=lambda other: other.member_id)
        ]
        more = f" and {len(names) - MEMBERS_NAMED_MAX} more" if len(names) > MEMBERS_NAMED_MAX else ""
        problems.append(
            f"group '{group.outcome.name}' is active ({group.state}) with {', '.join(names[:MEMBERS_NAMED_MAX])}{more}"
        )
    if problems:
        raise Refused(f"{'; '.join(problems)}: stop the members first")


async def commit(
    client: ClusterClient,
    groups: Iterable[GroupDescription],
    resets: Sequence[Reset],
    saved: GroupOffsets | None = None,
) -> dict[tuple[str, TopicPartition], Outcome]:
    """Commit the new offsets, of share groups their start offsets; the outcomes by group and partition.

    An offset that is that of the partition in `saved` is committed with its metadata.  Leader epochs are left out:
    that of a topic that has been deleted and created again would stop its consumers.
    """
    requested: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for reset in resets:
        assert reset.new is not None
        known = (saved or {}).get(reset.group, {}).get(reset.tp)
        metadata = known.metadata if known is not None and known.offset == reset.new else ""
        requested.setdefault(reset.group, {})[reset.tp] = CommittedOffset(reset.new, metadata=metadata)
    shares = {group.outcome.name for group in groups if group.type == SHARE}

    async def commit_group(name: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> Outcomes:
        if name in shares:
            return await alter_share_offsets(client, name, {tp: offset.offset for tp, offset in offsets.items()})
        return await commit_offsets(client, name, offsets)

    committed = await client.gather([commit_group(name, offsets) for name, offsets in requested.items()])
    return {
        (group, tp): outcome
        for group, responses in zip(requested, committed, strict=True)
        for tp, outcome in responses.items()
    }


def show_as_csv(run: Invocation, resets: Sequence[Reset], rows: Iterable[ResetRow], *, with_group: bool) -> None:
    """Write Kafka's CSV; errors are written to stderr."""
    warn_of_failures(run, rows)
    offsets = [
        (reset.group, reset.tp, reset.new) for reset in resets if reset.outcome.is_done and reset.new is not None
    ]
    run.console.verbatim(format_offsets(offsets, with_group=with_group))


def warn_of_failures(run: Invocation, rows: Iterable[ResetRow]) -> None:
    """Write the errors of the rows to stderr."""
    for row in rows:
        if row.error:
            where = row.topic if row.partition is None else f"{row.topic}-{row.partition}"
            run.console.warn(f"{row.group}: {where}: {row.error}: {row.message}")


# `kctl groups reset-offsets`.


verbs = typer.Typer(add_completion=False)


WOULD_RESET = "would be reset"


@verbs.command(
    "reset-offsets",
    cls=ChangingCommand,
    epilog=examples(
        "kctl groups reset-offsets billing --topic orders --to-earliest --dry-run",
        "kctl groups reset-offsets billing --topic orders:0,1 --shift-by -100 --yes",
        "kctl groups reset-offsets billing --all-topics --to-current --dry-run --export > before.csv",
        "kctl groups reset-offsets billing --from-file before.csv --yes",
    ),
)
@shows(ResetRow)
def reset_offsets(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Groups to reset.", metavar="GROUP")] = None,
    *,
    all_: All = False,
    group_regex: GroupRegex = None,
    topic: Topics = None,
    topic_regex: TopicRegex = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics with committed offsets of the group.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Reset to the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset to the end.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Reset to the committed offset, or to the end where there is none.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", help="Reset to this offset.", max=INT64_MAX, min=0)
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(
            "--shift-by",
            metavar="N",
            help="Move offsets by N records, back if N is negative.",
            min=-INT64_MAX,
            max=INT64_MAX,
        ),
    ] = None,
    to_datetime: Annotated[
        Time | None,
        typer.Option(
            "--to-datetime",
            parser=Time,
            help="Reset to the first record at or after that time: RFC 3339 (UTC without a zone), a date, 10 digits of"
            " epoch seconds or 13 of milliseconds, or a duration back from now such as -1h.",
        ),
    ] = None,
    by_duration: Annotated[
        SignedDuration | None,
        typer.Option("--by-duration", parser=SignedDuration, help="Reset to the time that long ago: PT1H30M, 90m, 2d."),
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option("--from-file", metavar="FILE", help="Reset to the offsets in a CSV file as --export writes it."),
    ] = None,
    export: Annotated[
        bool,
        typer.Option(
            "--export",
            help="Print Kafka's CSV instead of rows: topic,partition,offset, and the group in front"
            " if several groups are given.",
        ),
    ] = False,
    execute: Execute = False,
    dry_run: DryRun = False,
    no_backup: NoBackup = False,
    backup_dir: BackupDir = None,
) -> ExitStatus:
    """Set the committed offsets of groups without members; a group that does not exist is created.

    Exactly one of --to-..., --shift-by, --by-duration and --from-file selects the new offsets, and --topic or
    --all-topics the partitions, unless a file lists them.  Without --yes the plan is shown and nothing is changed.
    An offset outside the range of a partition is moved to its start or end, with a warning.

    DELTA is the number of records that are skipped, or, if negative, read again.  If an offset cannot be found, nothing
    is committed.  A group with members is refused with exit status 5.

    With --yes the committed offsets of the groups are first saved to a file; 'kctl groups restore' restores them.
    """
    run: Invocation = ctx.obj
    execute = execute and not dry_run
    pattern = group_pattern(names, group_regex, all_=all_)
    if not (names or all_ or pattern):
        raise UsageError("name the groups to reset, or use --all or --group-regex")
    requested = (
        sorted(set(names)) if names else run.on_brokers(lambda client: all_selected_groups(run, client, None, pattern))
    )
    target = parse_target(
        requested,
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        shift_by=shift_by,
        to_datetime=to_datetime,
        by_duration=by_duration,
        from_file=from_file,
    )
    scope = None
    if target.scenario is not Scenario.FILE:
        scope = parse_scope(topic, topic_regex, all_topics=all_topics)
    elif topic or all_topics or topic_regex is not None:
        raise UsageError("--from-file cannot be combined with --topic, --topic-regex or --all-topics")
    topics = topic_pattern(topic_regex)
    with_group = not names or len(requested) > 1
    if target.scenario is Scenario.FILE:
        requested = groups_in_file(run, requested, target, all_=not names)

    async def plan(client: ClusterClient) -> tuple[list[GroupDescription], list[Reset]]:
        groups = await look_up(client, requested)
        refuse_active(groups)
        chosen = groups if topics is None else with_matching_topics(groups, topics)
        return groups, await plan_resets(client, chosen, target, scope)

    groups, resets = run.on_brokers(plan)
    warn_of_clamped(run, resets)
    outcomes: dict[tuple[str, TopicPartition], Outcome] = {}
    if execute and resets and all(reset.outcome.is_done for reset in resets):
        if not no_backup:
            back_up(run, groups, "reset-offsets", backup_dir=backup_dir)
        outcomes = run.on_brokers(lambda client: commit(client, groups, resets))
    status = "reset" if outcomes else WOULD_RESET
    if not (execute or dry_run or export):
        run.console.note("nothing was changed; give --yes to commit these offsets")
    rows = [
        reset_row(planned, status, outcomes.get((planned.group, planned.tp)) if outcomes else None)
        for planned in resets
    ]
    if export:
        show_as_csv(run, resets, rows, with_group=with_group)
    else:
        run.console.show(ResetRow, rows)
    return run.status_of(rows)
