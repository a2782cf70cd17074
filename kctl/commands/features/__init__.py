"""`kctl features`: describe, upgrade and downgrade the features of a cluster."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "describe", "upgrade", "downgrade"),
    help="Describe, upgrade and downgrade the features of a cluster.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
