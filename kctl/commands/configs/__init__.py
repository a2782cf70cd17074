"""`kctl configs`: describe, change and compare properties of topics, brokers, groups and so on, and quotas."""

from __future__ import annotations

import typer

from kctl.commands.frame.lazy_group import verb_group

app = typer.Typer(
    cls=verb_group(__name__, {"describe": "describe", "alter": "alter", "diff": "diff"}),
    help="Describe, change and compare properties of topics, brokers, groups and clients.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
