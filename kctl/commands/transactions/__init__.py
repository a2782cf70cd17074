"""`kctl transactions`: describe transactions and producers, find hanging transactions, abort and terminate them."""

from __future__ import annotations

import typer

from kctl.commands.frame.lazy_group import verb_group

app = typer.Typer(
    cls=verb_group(
        __name__,
        {
            "list": "transactions",
            "describe": "transactions",
            "describe-producers": "producers",
            "find-hanging": "transactions",
            "abort": "transactions",
            "terminate": "transactions",
        },
    ),
    help="Describe transactions and producers, find hanging transactions, abort and terminate them.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
