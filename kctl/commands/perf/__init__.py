"""`kctl perf`: measure throughput and latency with test records."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "produce", "consume", "latency"),
    help="Measure throughput and latency with test records.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
