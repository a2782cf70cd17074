"""`kctl groups members`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from kctl.admin.groups import look_up_groups
from kctl.commands.command import examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.groups import rows as group_rows
from kctl.commands.groups.options import All, GroupRegex, Names
from kctl.commands.groups.rows import MEMBER_COLUMNS, GroupMemberItem, member_items, member_rows
from kctl.commands.groups.selection import group_pattern, selected_groups
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.shown import shows

if TYPE_CHECKING:
    from kctl.admin.group_description import GroupDescription
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)


@app.command("members", cls=QueryCommand, epilog=examples("kctl groups members billing", "kctl groups members --all"))
@shows(GroupMemberItem)
def members(
    ctx: typer.Context, names: Names = None, *, all_: All = False, group_regex: GroupRegex = None
) -> ExitStatus:
    """List the members of consumer groups and their assigned partitions."""
    run: Invocation = ctx.obj
    pattern = group_pattern(names, group_regex, all_=all_)

    async def query(client: ClusterClient) -> tuple[list[GroupDescription], list[Outcome]]:
        requested, failed = await selected_groups(run, client, names, pattern)
        return await look_up_groups(client, requested), failed

    found, failed = run.on_brokers(query)
    groups = [group_rows.group_item(group) for group in found] + [group_rows.broker_item(one) for one in failed]
    items = [item for group in groups for item in member_items(group)]
    run.console.show(MEMBER_COLUMNS, items, rows=[row for group in groups for row in member_rows(group)])
    return run.status_of(items)
