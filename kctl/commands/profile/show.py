"""`kctl profile show`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.profile.options import stored
from kctl.commands.profile.rows import ProfileRow, profile_row
from kctl.commands.profile_store import ENVIRONMENT_NAME
from kctl.commands.shown import shows_one
from kctl.errors import UsageError

app = typer.Typer(add_completion=False)


@app.command("show", cls=LocalCommand, epilog=examples("kctl profile show", "kctl profile show prod --format json"))
@shows_one(ProfileRow)
def show(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(help="Name of the profile.  Default: KCTL_PROFILE, else the current one.", metavar="PROFILE"),
    ] = None,
) -> ExitStatus:
    """Show a profile; secrets among its properties are hidden."""
    run: Invocation = ctx.obj
    profiles = stored()
    chosen = name or os.environ.get(ENVIRONMENT_NAME) or profiles.current
    if chosen is None:
        raise UsageError("there is no current profile; name a profile")
    run.console.show_one(profile_row(profiles.named(chosen), profiles))
    return ExitStatus.DONE
