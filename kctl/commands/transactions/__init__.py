"""`kctl transactions`: describe transactions, find hanging ones and abort them."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "list", "describe", "find-hanging", "abort"),
    help="Describe transactions, find hanging ones and abort them.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
