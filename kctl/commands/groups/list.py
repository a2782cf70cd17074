"""`kctl groups list`."""

from __future__ import annotations

from typing import Annotated

from kctl.admin.groups import list_groups as ask
from kctl.commands.compat.groups import listed
from kctl.commands.declaration import Option
from kctl.commands.exit_status import ExitStatus
from kctl.commands.groups import app
from kctl.commands.groups.options import Compat
from kctl.commands.groups.rows import LIST_COLUMNS, list_rows
from kctl.commands.invocation import Invocation

STATES = (
    *("Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady"),
    *("Stable", "Dead"),
)
TYPES = ("classic", "consumer", "share", "streams")


@app.command(
    "list",
    cluster=True,
    examples=("kctl groups list", "kctl groups list --state Empty --format json", "kctl groups list --type consumer"),
)
def list_groups(
    run: Invocation,
    *,
    state: Annotated[list[str] | None, Option("--state", choices=STATES, help="Only groups in this state.")] = None,
    type_: Annotated[
        list[str] | None,
        Option("--type", choices=TYPES, help="Only groups of this type."),
    ] = None,
    compat: Compat = None,
    verbose: Annotated[
        bool, Option("--verbose", help="With --compat: the states, as --state of Kafka's tool.")
    ] = False,
) -> ExitStatus:
    """List the groups of all brokers.

    Members of a group of type classic share the partitions out among themselves; in one of type consumer
    (group.protocol=consumer) the broker does it.  Brokers before 2.6 do not tell the state of a group here, brokers
    before 3.8 not the type: they have classic groups only.
    """
    groups, failed = run.on_brokers(lambda client: ask(client, state or (), type_ or ()))
    if compat:
        run.console.verbatim(listed(compat, groups, with_states=verbose or bool(state), with_types=bool(type_)))
        for one in failed:
            run.console.warn(f"broker {one.name} cannot tell its groups: {one.message}")
        return ExitStatus.FAILED if failed else ExitStatus.DONE
    rows = list_rows(groups, failed)
    run.console.show(LIST_COLUMNS, rows)
    return run.status_of(rows)
