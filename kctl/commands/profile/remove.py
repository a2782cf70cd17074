"""`kctl profile remove`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.profile.options import NAME, change

app = typer.Typer(add_completion=False)


@app.command("remove", cls=LocalCommand, epilog=examples("kctl profile remove dev"))
def remove(ctx: typer.Context, name: Annotated[str, NAME]) -> ExitStatus:
    """Remove a profile; nothing changes in the cluster, and its properties file remains."""
    run: Invocation = ctx.obj
    return change(run, lambda profiles: profiles.without(name), None)
