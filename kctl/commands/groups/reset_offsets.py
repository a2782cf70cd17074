"""`kctl groups reset-offsets`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.offset_reset import Scenario, plan_resets
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.compat.versions import COMPAT_HELP, CompatVersion
from kctl.commands.exit_status import ExitStatus
from kctl.commands.groups import reset as group_reset
from kctl.commands.groups.backup import back_up
from kctl.commands.groups.change_rows import RESET_COLUMNS, ResetRow, reset_row
from kctl.commands.groups.offset_warnings import warn_of_clamped
from kctl.commands.groups.options import All, BackupDir, DryRun, GroupRegex, NoBackup, TopicRegex, Topics
from kctl.commands.groups.selection import all_selected_groups, group_pattern, topic_pattern, with_matching_topics
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows
from kctl.errors import UsageError
from kctl.integers import INT64_MAX

if TYPE_CHECKING:
    from kctl.admin.group_description import GroupDescription
    from kctl.admin.offset_reset import Reset
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient
    from kctl.model import TopicPartition

app = typer.Typer(add_completion=False)


WOULD_RESET = "would be reset"


@app.command(
    "reset-offsets",
    cls=ChangingCommand,
    epilog=examples(
        "kctl groups reset-offsets billing --topic orders --to-earliest --dry-run",
        "kctl groups reset-offsets billing --topic orders:0,1 --shift-by -100 --execute",
        "kctl groups reset-offsets billing --all-topics --to-current --dry-run --export > before.csv",
        "kctl groups reset-offsets billing --from-file before.csv --execute",
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
        str | None,
        typer.Option(
            "--to-datetime",
            metavar="TIME",
            help="Reset to the first record at or after that time: RFC 3339 (UTC without a zone), a date, 10 digits of"
            " epoch seconds or 13 of milliseconds, or a duration back from now such as -1h.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="DURATION", help="Reset to the time that long ago: PT1H30M, 90m, 2d."),
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
    execute: Annotated[bool, typer.Option("--execute", help="Commit the new offsets.")] = False,
    dry_run: DryRun = False,
    no_backup: NoBackup = False,
    backup_dir: BackupDir = None,
    compat: Annotated[
        CompatVersion | None,
        typer.Option(
            "--compat",
            help=f"{COMPAT_HELP}  Nothing is done unless --execute is given.",
        ),
    ] = None,
) -> ExitStatus:
    """Set the committed offsets of groups without members; a group that does not exist is created.

    Exactly one of --to-..., --shift-by, --by-duration and --from-file selects the new offsets, and --topic or
    --all-topics the partitions, unless a file lists them.  Either --dry-run or --execute is required.  An offset
    outside the range of a partition is moved to its start or end, with a warning.

    DELTA is the number of records that are skipped, or, if negative, read again.  If an offset cannot be found, nothing
    is committed.  A group with members is refused with exit status 5.

    With --execute the committed offsets of the groups are first saved to a file; 'kctl groups restore' restores them.
    """
    run: Invocation = ctx.obj
    if execute and dry_run:
        raise UsageError("--dry-run and --execute cannot be combined")
    if not (execute or dry_run or compat):
        raise UsageError("give --dry-run or --execute")
    pattern = group_pattern(names, group_regex, all_=all_)
    if not (names or all_ or pattern):
        raise UsageError("name the groups to reset, or use --all or --group-regex")
    requested = (
        sorted(set(names)) if names else run.on_brokers(lambda client: all_selected_groups(run, client, None, pattern))
    )
    target = group_reset.parse_target(
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
        scope = group_reset.parse_scope(topic, topic_regex, all_topics=all_topics)
    elif topic or all_topics or topic_regex is not None:
        raise UsageError("--from-file cannot be combined with --topic, --topic-regex or --all-topics")
    topics = topic_pattern(topic_regex)
    with_group = not names or len(requested) > 1
    if target.scenario is Scenario.FILE:
        requested = group_reset.groups_in_file(run, requested, target, all_=not names)

    async def plan(client: ClusterClient) -> tuple[list[GroupDescription], list[Reset]]:
        groups = await group_reset.look_up(client, requested)
        group_reset.refuse_active(groups)
        chosen = groups if topics is None else with_matching_topics(groups, topics)
        return groups, await plan_resets(client, chosen, target, scope)

    groups, resets = run.on_brokers(plan)
    warn_of_clamped(run, resets)
    outcomes: dict[tuple[str, TopicPartition], Outcome] = {}
    if execute and resets and all(reset.outcome.is_done for reset in resets):
        if not no_backup:
            back_up(run, groups, "reset-offsets", backup_dir=backup_dir)
        outcomes = run.on_brokers(lambda client: group_reset.commit(client, resets))
    status = "reset" if outcomes else WOULD_RESET
    rows = [reset_row(one, status, outcomes.get((one.group, one.tp)) if outcomes else None) for one in resets]
    if compat:
        group_reset.show_as_kafka(
            run, resets, rows, compat, target.scenario, topics=topic or (), export=export, with_group=with_group
        )
    elif export:
        group_reset.show_as_csv(run, resets, rows, with_group=with_group)
    else:
        run.console.show(RESET_COLUMNS, rows)
    return run.status_of(rows)
