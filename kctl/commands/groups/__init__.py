"""`kctl groups`: describe consumer groups and their lag, delete them, reset their offsets."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(
        __name__,
        "list",
        "describe",
        "lag",
        "members",
        "history",
        "delete",
        "delete-offsets",
        "reset-offsets",
        "restore",
        "export",
        "import",
    ),
    help="Describe consumer groups and their lag, delete them, reset their offsets.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
