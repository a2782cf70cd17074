"""`kctl metrics`: show what a broker measures, and serve the lag of groups to Prometheus."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "show", "serve"),
    help="Show the metrics of a broker, or serve those of a cluster.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
