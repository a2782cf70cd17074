"""`kctl plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.desired_state import format_state
from kctl.admin.state_diff import differences
from kctl.admin.state_reading import export_state, read_state
from kctl.admin.yaml_text import write_yaml
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.plan.rows import COLUMNS, ChangeRow, planned_row, read_desired
from kctl.commands.shown import shows
from kctl.errors import UsageError

app = typer.Typer(add_completion=False)


@app.command(
    "plan",
    cls=ClusterCommand,
    epilog=examples(
        "kctl plan cluster.yaml", "kctl plan cluster.yaml --format json", "kctl plan --export > cluster.yaml"
    ),
)
@shows(ChangeRow, instead=dict[str, object])
def plan(
    ctx: typer.Context,
    file: Annotated[
        str | None, typer.Argument(help="YAML document with topics, ACLs, quotas and users.", metavar="FILE")
    ] = None,
    *,
    delete: Annotated[
        bool, typer.Option("--delete", help="Plan for 'kctl apply --delete': also remove what the document lacks.")
    ] = False,
    export: Annotated[bool, typer.Option("--export", help="Write a document with what the cluster has.")] = False,
) -> ExitStatus:
    """Show how a cluster differs from a YAML document, or write such a document.

    One row per difference; the exit status is 3 if there are any.  Nothing is changed.  Properties, ACLs, quotas, users
    and topics that only the cluster has are shown if the section 'managed' of the document covers them.

    --export writes topics with their properties, ACLs, quotas and SCRAM users, without passwords and internal topics.
    docs/plan-and-apply.md describes the document.
    """
    run: Invocation = ctx.obj
    if export == (file is not None):
        raise UsageError("give either a file or --export")
    if file is None:
        state, notes = run.on_brokers(export_state)
        for note in notes:
            run.console.note(note)
        document = format_state(state)
        if run.console.is_machine_readable:
            run.console.show_one(document)
        else:
            run.console.verbatim(write_yaml(document))
        return ExitStatus.DONE
    desired = read_desired(file)
    changes = differences(desired, run.on_brokers(lambda client: read_state(client, desired)))
    run.console.show(COLUMNS, [planned_row(change, deletes=delete) for change in changes])
    return ExitStatus.UNMET if changes else ExitStatus.DONE
