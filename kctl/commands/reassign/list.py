"""`kctl reassign list`."""

from __future__ import annotations

import typer

from kctl.admin.reassignment import list_reassignments
from kctl.commands.command import examples
from kctl.commands.compat import reassign as reassign_compat
from kctl.commands.compat.versions import Compat
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.reassign.rows import LIST_COLUMNS, OngoingRow, list_row
from kctl.commands.shown import shows

app = typer.Typer(add_completion=False)


@app.command("list", cls=QueryCommand, epilog=examples("kctl reassign list", "kctl reassign list --format json"))
@shows(OngoingRow)
def list_moves(ctx: typer.Context, *, compat: Compat = None) -> ExitStatus:
    """List all partitions that are being moved."""
    run: Invocation = ctx.obj
    ongoing = run.on_brokers(list_reassignments)
    if compat:
        run.console.verbatim(reassign_compat.listed(ongoing))
    else:
        run.console.show(LIST_COLUMNS, [list_row(tp, one) for tp, one in ongoing.items()])
    return ExitStatus.DONE
