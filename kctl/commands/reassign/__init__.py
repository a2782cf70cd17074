"""`kctl reassign`: move partitions to other brokers."""

from __future__ import annotations

import typer

from kctl.commands.frame.lazy_group import verb_group

app = typer.Typer(
    cls=verb_group(
        __name__,
        {
            "plan": "plan",
            "plan-disks": "plan_disks",
            "execute": "execute",
            "status": "moves",
            "verify": "moves",
            "cancel": "moves",
            "list": "moves",
        },
    ),
    help="Move partitions to other brokers.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
