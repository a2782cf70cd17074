"""`kctl topics`: list, describe, create, alter and delete topics."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "list", "describe", "create", "alter", "delete"),
    help="List, describe, create, alter and delete topics.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
