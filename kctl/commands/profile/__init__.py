"""`kctl profile`: store how to connect to clusters, and what is allowed there."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "add", "use", "list", "show", "rename", "remove"),
    help="Store how to connect to clusters, and what is allowed there.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
