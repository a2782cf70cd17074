"""`kctl groups delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.groups import delete_groups, look_up_groups
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.groups.backup import HINT, back_up, unreadable
from kctl.commands.groups.change_rows import DELETE_COLUMNS, GroupDeletionRow
from kctl.commands.groups.deletion import previewed_deletion
from kctl.commands.groups.options import All, BackupDir, DryRun, EmptyName, GroupRegex, NoBackup
from kctl.commands.groups.selection import all_selected_groups, group_pattern, with_empty_name
from kctl.commands.invocation import Invocation
from kctl.commands.rows import outcome_error
from kctl.commands.shown import shows
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient

THE_EMPTY_NAME = "the group with the empty name"

app = typer.Typer(add_completion=False)


@app.command(
    "delete",
    cls=ChangingCommand,
    epilog=examples("kctl groups delete billing --yes", "kctl groups delete --all --dry-run"),
)
@shows(GroupDeletionRow)
def delete(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Groups to delete.", metavar="GROUP")] = None,
    *,
    all_: All = False,
    group_regex: GroupRegex = None,
    empty_name: EmptyName = False,
    dry_run: DryRun = False,
    no_backup: NoBackup = False,
    backup_dir: BackupDir = None,
) -> ExitStatus:
    """Delete empty consumer groups with their committed offsets.

    The broker refuses to delete a group with members.  Groups of type share or streams must be named.  Asks for
    confirmation on a terminal; elsewhere --yes is required (exit status 5).  The committed offsets of the groups are
    first saved to a file; 'kctl groups restore' restores them.
    """
    run: Invocation = ctx.obj
    names = with_empty_name(names, empty_name=empty_name)
    pattern = group_pattern(names, group_regex, all_=all_)
    if not (names or all_ or pattern):
        raise UsageError("name the groups to delete, or use --all or --group-regex")
    requested = run.on_brokers(lambda client: all_selected_groups(run, client, names, pattern))

    async def preview(client: ClusterClient) -> list[Outcome]:
        return [previewed_deletion(group) for group in await look_up_groups(client, requested)]

    unsaved: dict[str, Outcome] = {}

    async def act(client: ClusterClient) -> list[Outcome]:
        chosen = [name for name in requested if name not in unsaved]
        deleted = await delete_groups(client, chosen) if chosen else []
        return sorted([*unsaved.values(), *deleted], key=lambda one: one.name)

    if not dry_run:
        run.consent(f"Delete {', '.join(name or THE_EMPTY_NAME for name in requested)} with all committed offsets?")
        if requested and not no_backup:
            groups = run.on_brokers(lambda client: look_up_groups(client, requested))
            unsaved = unreadable(groups)
            for name in unsaved:
                run.console.warn(f"group '{name}' is not deleted: its offsets cannot be backed up{HINT}")
            readable = [group for group in groups if group.outcome.name not in unsaved]
            back_up(run, readable, "delete", backup_dir=backup_dir)
    outcomes = run.on_brokers(preview if dry_run else act)
    status = "would be deleted" if dry_run else "deleted"
    rows = [GroupDeletionRow(one.name, status if one.is_done else None, **outcome_error(one)) for one in outcomes]
    run.console.show(DELETE_COLUMNS, rows)
    return run.status_of(rows)
