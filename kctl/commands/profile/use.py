"""`kctl profile use`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.profile.options import change
from kctl.commands.profile.rows import ProfileRow
from kctl.commands.profile_document import Profiles
from kctl.commands.shown import shows
from kctl.errors import UsageError

app = typer.Typer(add_completion=False)


@app.command("use", cls=LocalCommand, epilog=examples("kctl profile use dev", "kctl profile use --none"))
@shows(ProfileRow)
def use(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Name of the profile.", metavar="PROFILE")] = None,
    *,
    none: Annotated[bool, typer.Option("--none", help="Unset the current profile.")] = False,
) -> ExitStatus:
    """Make a profile the current one, which applies to commands that name no other profile or bootstrap servers."""
    run: Invocation = ctx.obj
    if none == (name is not None):
        raise UsageError("name a profile, or give --none")

    def edit(profiles: Profiles) -> Profiles:
        return profiles._replace(current=None if name is None else profiles.named(name).name)

    return change(run, edit, name)
