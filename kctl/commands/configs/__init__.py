"""`kctl configs`: describe and change properties of topics and brokers, and quotas of clients."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "describe", "alter"),
    help="Describe and change properties of topics and brokers.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
