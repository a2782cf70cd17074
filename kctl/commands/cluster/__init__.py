"""`kctl cluster`: describe a cluster, check its health, run one for development."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "describe", "log-dirs", "roll", "maintenance", "health", "start", "status", "stop"),
    help="Describe a cluster, check its health, restart it, run one for development.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
