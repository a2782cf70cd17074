"""`kctl groups delete-offsets`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.group_offsets import delete_offsets as request_deletion
from kctl.admin.groups import look_up_group
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.groups.backup import back_up
from kctl.commands.groups.change_rows import (
    DELETE_OFFSETS_COLUMNS,
    GroupDeletionRow,
    OffsetDeletionRow,
    deleted_offset_row,
)
from kctl.commands.groups.deletion import committed_in_scope, previewed_deletions
from kctl.commands.groups.options import BackupDir, DryRun, NoBackup, TopicRegex, Topics
from kctl.commands.groups.reset import parse_scope
from kctl.commands.groups.selection import topic_pattern, with_matching_topics
from kctl.commands.invocation import Invocation
from kctl.commands.rows import outcome_error
from kctl.commands.shown import shows
from kctl.quantities import counted

app = typer.Typer(add_completion=False)


@app.command(
    "delete-offsets",
    cls=ChangingCommand,
    epilog=examples(
        "kctl groups delete-offsets billing --topic orders --dry-run",
        "kctl groups delete-offsets billing --topic orders:0,3-5 --topic payments --yes",
    ),
)
@shows(OffsetDeletionRow, GroupDeletionRow)
def delete_offsets(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Group whose offsets to delete.", metavar="GROUP")],
    *,
    topic: Topics = None,
    topic_regex: TopicRegex = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics with committed offsets of the group.")
    ] = False,
    dry_run: DryRun = False,
    no_backup: NoBackup = False,
    backup_dir: BackupDir = None,
) -> ExitStatus:
    """Delete committed offsets of a group.

    The broker refuses to delete offsets of topics that members of the group subscribe to.  Asks for confirmation on a
    terminal; elsewhere --yes is required (exit status 5).  The committed offsets of the group are first saved to a
    file; 'kctl groups restore' restores them.
    """
    run: Invocation = ctx.obj
    scope = parse_scope(topic, topic_regex, all_topics=all_topics)
    topics = topic_pattern(topic_regex)
    group = run.on_brokers(lambda client: look_up_group(client, name))
    if not group.outcome.is_done:
        run.console.show(DELETE_OFFSETS_COLUMNS, [GroupDeletionRow(name, None, **outcome_error(group.outcome))])
        return ExitStatus.FAILED
    (chosen,) = [group] if topics is None else with_matching_topics([group], topics)
    committed = {one.tp: one.committed_offset for one in chosen.offsets if one.committed_offset >= 0}
    requested = committed_in_scope(committed, scope)
    if not dry_run:
        run.consent(f"Delete {counted(len(requested), 'committed offset')} of {name}?")
        if requested and not no_backup:
            back_up(run, [group], "delete-offsets", backup_dir=backup_dir)
        outcomes = run.on_brokers(lambda client: request_deletion(client, name, requested)) if requested else {}
    else:
        outcomes = previewed_deletions(group, requested)
    status = "would be deleted" if dry_run else "deleted"
    rows = [deleted_offset_row(name, tp, committed.get(tp), status, outcomes[tp]) for tp in requested]
    rows += [
        OffsetDeletionRow(name, topic_name, partition=None, offset=None, status="nothing committed")
        for topic_name in sorted(set(scope or ()) - {tp.topic for tp in requested})
    ]
    run.console.show(DELETE_OFFSETS_COLUMNS, rows)
    return run.status_of(rows)
