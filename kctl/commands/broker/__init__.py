"""`kctl broker`: start, stop, check and examine a broker."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "start", "stop", "status", "check", "bundle"),
    help="Start, stop, check and examine a broker.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
