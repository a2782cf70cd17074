"""`kctl profile rename`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.profile.options import NAME, change

app = typer.Typer(add_completion=False)


@app.command("rename", cls=LocalCommand, epilog=examples("kctl profile rename dev development"))
def rename(
    ctx: typer.Context,
    name: Annotated[str, NAME],
    new: Annotated[str, typer.Argument(help="Its new name.", metavar="NEW")],
) -> ExitStatus:
    """Rename a profile; the current one stays the current one."""
    run: Invocation = ctx.obj
    return change(run, lambda profiles: profiles.renamed(name, new), new)
