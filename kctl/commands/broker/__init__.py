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
            "check": "running",
            "bundle": "running",
        },
    ),
    help="Start, stop, check and examine a broker.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
