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
            "copy-plan": "online_plan",
            "copy-start": "online_copy",
            "copy-status": "online_copy",
            "copy-cutover": "online_switch",
            "copy-back": "online_switch",
        },
    ),
    help="Move from ZooKeeper to KRaft and back: convert a stopped cluster, or copy a running one.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
