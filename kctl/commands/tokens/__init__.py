"""`kctl tokens`: create, describe, renew and expire delegation tokens."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "create", "describe", "renew", "expire"),
    help="Create, describe, renew and expire delegation tokens.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
