"""`kctl users`: list, create, alter and delete SCRAM users."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "list", "create", "alter", "delete"),
    help="List, create, alter and delete SCRAM users.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
