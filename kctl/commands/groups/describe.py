"""`kctl groups describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kctl.admin.groups import describe_groups
from kctl.commands.command import examples
from kctl.commands.compat.groups import describe_as_kafka
from kctl.commands.compat.versions import Compat
from kctl.commands.exit_status import ExitStatus
from kctl.commands.groups import rows as group_rows
from kctl.commands.groups.options import All, EmptyName, GroupRegex, Names
from kctl.commands.groups.selection import group_pattern, selected_groups, with_empty_name
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.shown import shows

if TYPE_CHECKING:
    from kctl.admin.group_description import GroupDescription
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)


Section = Literal["offsets", "members", "state"]


@app.command(
    "describe",
    cls=QueryCommand,
    epilog=examples("kctl groups describe billing", "kctl groups describe --all --show state --format json"),
)
@shows(group_rows.GroupItem)
def describe(
    ctx: typer.Context,
    names: Names = None,
    *,
    show: Annotated[
        Section, typer.Option("--show", help="What the rows show; json, jsonl and yaml always include all three.")
    ] = "offsets",
    all_: All = False,
    group_regex: GroupRegex = None,
    empty_name: EmptyName = False,
    compat: Compat = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --compat: more columns, as in Kafka's tool.")
    ] = False,
) -> ExitStatus:
    """Describe consumer groups: committed offsets and lag, members, state.

    LAG is LOG-END-OFFSET minus CURRENT-OFFSET; it is empty where nothing has been committed.
    """
    run: Invocation = ctx.obj
    names = with_empty_name(names, empty_name=empty_name)
    pattern = group_pattern(names, group_regex, all_=all_)

    async def query(client: ClusterClient) -> tuple[list[GroupDescription], list[Outcome]]:
        requested, failed = await selected_groups(run, client, names, pattern)
        return await describe_groups(client, requested), failed

    groups, failed = run.on_brokers(query)
    if compat:
        status = describe_as_kafka(run, groups, show, compat, verbose=verbose) if groups or not failed else None
        for one in failed:
            run.console.warn(f"broker {one.name} cannot list its groups: {one.message}")
        return ExitStatus.FAILED if failed or status is None else status
    items = [group_rows.group_item(group) for group in groups] + [group_rows.broker_item(one) for one in failed]
    columns, rows_of = {
        "offsets": (group_rows.OFFSET_COLUMNS, group_rows.offset_rows),
        "members": (group_rows.MEMBER_COLUMNS, group_rows.member_rows),
        "state": (group_rows.STATE_COLUMNS, group_rows.state_rows),
    }[show]
    run.console.show(columns, items, rows=[row for item in items for row in rows_of(item)])
    return run.status_of([*items, *(offset for item in items for offset in item.offsets)])
