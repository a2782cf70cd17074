"""`kctl broker`: start, stop, check and examine a broker."""

from __future__ import annotations

import typer

from kctl.commands.frame.lazy_group import verb_group

app = typer.Typer(
    cls=verb_group(
        __name__,
        {
            "start": "start",
            "stop": "running",
            "status": "running",
            "check": "examination",
            "bundle": "examination",
            "zookeeper-start": "zookeeper",
            "zookeeper-ls": "zookeeper",
            "zookeeper-get": "zookeeper",
            "zookeeper-stat": "zookeeper",
        },
    ),
    help="Start, stop, check and examine a broker; the same for ZooKeeper.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
