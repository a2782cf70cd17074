"""`kctl metadata-quorum`: describe the controllers of a KRaft cluster."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "describe"),
    help="Describe the controllers of a KRaft cluster.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
