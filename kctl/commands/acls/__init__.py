"""`kctl acls`: list, add, remove, check, export and apply access control lists."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "list", "add", "remove", "check", "export", "apply"),
    help="List, change, check, export and apply access control lists.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
