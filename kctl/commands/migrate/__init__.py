"""`kctl migrate`: from ZooKeeper to KRaft, and back."""

from __future__ import annotations

import typer

from kctl.commands.frame.lazy_group import verb_group

app = typer.Typer(
    cls=verb_group(
        __name__,
        {
            "check": "check",
            "inventory": "plan",
            "plan": "plan",
            "convert": "convert",
            "revert": "convert",
            "verify": "verify",
            "rescue": "rescue",
        },
    ),
    help="Convert a stopped cluster from ZooKeeper to KRaft directories, and back.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
