"""`kctl profile list`."""

from __future__ import annotations

import typer

from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.profile.options import stored
from kctl.commands.profile.rows import COLUMNS, profile_row

app = typer.Typer(add_completion=False)


@app.command("list", cls=LocalCommand, epilog=examples("kctl profile list", "kctl profile list --format json"))
def list_profiles(ctx: typer.Context) -> ExitStatus:
    """List profiles."""
    run: Invocation = ctx.obj
    profiles = stored()
    run.console.show(COLUMNS, [profile_row(profiles.profiles[name], profiles) for name in sorted(profiles.profiles)])
    return ExitStatus.DONE
