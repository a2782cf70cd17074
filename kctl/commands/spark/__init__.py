"""`kctl spark`: export topics to Parquet with Apache Spark."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "export", "warmup"),
    help="Export topics to Parquet with Apache Spark.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
