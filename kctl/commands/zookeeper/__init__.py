"""`kctl zookeeper`: run the ZooKeeper-compatible service; read znodes of any ensemble."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "start", "ls", "get", "stat"),
    help="Run the ZooKeeper-compatible service; read znodes of any ensemble.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
