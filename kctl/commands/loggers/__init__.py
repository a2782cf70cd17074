"""`kctl loggers`: list, set and reset the log levels of brokers."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "list", "set", "reset"),
    help="List, set and reset the log levels of brokers.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
