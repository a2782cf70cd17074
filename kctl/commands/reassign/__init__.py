"""`kctl reassign`: move partitions to other brokers."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "plan", "plan-disks", "execute", "status", "verify", "cancel", "list"),
    help="Move partitions to other brokers.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
