"""`kctl quotas`: describe and change client quotas, and show which quotas apply to a client."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "describe", "alter", "check"),
    help="Describe and change client quotas, show which one applies.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
