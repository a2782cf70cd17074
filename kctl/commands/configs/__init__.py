"""`kctl configs`: describe, change and compare properties of topics, brokers, groups and so on, and quotas."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "describe", "alter", "diff"),
    help="Describe, change and compare properties of topics, brokers, groups and clients.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
