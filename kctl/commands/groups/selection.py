"""The groups that a command applies to: named groups, or all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kctl.admin.group_description import OTHER_TYPES
from kctl.admin.groups import list_groups as query
from kctl.commands.invocation import Invocation
from kctl.errors import ApiError, UsageError

if TYPE_CHECKING:
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient


async def all_selected_groups(
    run: Invocation, client: ClusterClient, names: list[str] | None, *, all_: bool
) -> list[str]:
    """The result of `selected_groups`."""
    requested, failed = await selected_groups(run, client, names, all_=all_)
    if failed:
        raise ApiError(failed[0].error, f"broker {failed[0].name} cannot list its groups: {failed[0].message}")
    return requested


async def selected_groups(
    run: Invocation, client: ClusterClient, names: list[str] | None, *, all_: bool
) -> tuple[list[str], list[Outcome]]:
    """The named groups, or all groups of consumers, and the brokers with an error.  Groups of other types are omitted
    with a warning.
    """
    if names and all_:
        raise UsageError("name groups or give --all, not both")
    if names:
        return sorted(set(names)), []
    groups, failed = await query(client)
    for group in groups:
        if group.type in OTHER_TYPES:
            run.console.warn(
                f"group '{group.group_id}' is left out: it is a {group.type} group, see {OTHER_TYPES[group.type]}"
            )
    return sorted(group.group_id for group in groups if group.type not in OTHER_TYPES), failed
