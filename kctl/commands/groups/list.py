"""`kctl groups list`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, NamedTuple

import typer

from kctl.admin.groups import ListedGroup
from kctl.admin.groups import list_groups as query
from kctl.admin.outcome import Outcome
from kctl.commands.command import examples
from kctl.commands.compat.groups import listed
from kctl.commands.compat.versions import Compat
from kctl.commands.exit_status import ExitStatus
from kctl.commands.groups.options import GroupRegex
from kctl.commands.groups.selection import group_pattern
from kctl.commands.invocation import Invocation
from kctl.commands.omissions import note_omissions
from kctl.commands.query import QueryCommand
from kctl.commands.rows import outcome_error
from kctl.commands.shown import shows
from kctl.console import ERROR_COLUMNS, Column

app = typer.Typer(add_completion=False)

COLUMNS = (
    Column("group"),
    Column("state"),
    Column("protocol_type"),
    Column("coordinator", numeric=True),
    Column("type"),
    *ERROR_COLUMNS,
)


class ListedGroupRow(NamedTuple):
    """A group in the list of all groups."""

    group: str
    state: str | None
    protocol_type: str | None
    coordinator: int
    type: str | None
    error: str | None = None
    message: str | None = None


class CoordinatorFailureRow(NamedTuple):
    """A broker that could not list its groups."""

    group: None
    coordinator: int
    error: str | None
    message: str | None


class State(StrEnum):
    """States by which --state selects."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupType(StrEnum):
    """Types by which --type selects."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


@app.command(
    "list",
    cls=QueryCommand,
    epilog=examples(
        "kctl groups list", "kctl groups list --state Empty --format json", "kctl groups list --type consumer"
    ),
)
@shows(ListedGroupRow, CoordinatorFailureRow)
def list_groups(
    ctx: typer.Context,
    *,
    state: Annotated[list[State] | None, typer.Option("--state", help="Only groups in this state.")] = None,
    type_: Annotated[
        list[GroupType] | None,
        typer.Option("--type", help="Only groups of this type."),
    ] = None,
    group_regex: GroupRegex = None,
    compat: Compat = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --compat: show states, as --state of Kafka's tool does.")
    ] = False,
) -> ExitStatus:
    """List the groups of all brokers.

    In a group of type classic, a member assigns the partitions; in a group of type consumer (group.protocol=consumer),
    the broker does.  The state requires Kafka 2.6 or later, the type Kafka 3.8 or later; earlier versions have only
    classic groups.
    """
    run: Invocation = ctx.obj
    pattern = group_pattern(None, group_regex)
    groups, failed = run.on_brokers(lambda client: query(client, state or (), type_ or ()))
    if not state and not type_ and not failed:
        run.store_names("groups", (group.group_id for group in groups))
    if pattern is not None:
        chosen = set(pattern.select(group.group_id for group in groups))
        groups = [group for group in groups if group.group_id in chosen]
    if compat:
        run.console.verbatim(listed(compat, groups, with_states=verbose or bool(state), with_types=bool(type_)))
        for one in failed:
            run.console.warn(f"broker {one.name} cannot list its groups: {one.message}")
        return ExitStatus.FAILED if failed else ExitStatus.DONE
    rows = _rows(groups, failed)
    run.console.show(COLUMNS, rows)
    if pattern is None:
        note_omissions(run, rows, "groups")
    return run.status_of(rows)


def _rows(groups: Iterable[ListedGroup], failed: Iterable[Outcome]) -> list[ListedGroupRow | CoordinatorFailureRow]:
    """A row for each group, and one for each broker that could not list its groups."""
    rows: list[ListedGroupRow | CoordinatorFailureRow] = [
        ListedGroupRow(
            group=group.group_id,
            state=group.state or None,
            protocol_type=group.protocol_type or None,
            coordinator=group.coordinator_id,
            type=group.type or None,
        )
        for group in sorted(groups, key=lambda group: group.group_id)
    ]
    rows += [CoordinatorFailureRow(None, int(one.name), **outcome_error(one)) for one in failed]
    return rows
