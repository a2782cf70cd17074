"""`kctl perf`: measure throughput and latency with test records."""

from __future__ import annotations

import typer

from kctl.commands.frame.lazy_group import verb_group

app = typer.Typer(
    cls=verb_group(__name__, {"produce": "runs", "consume": "runs", "latency": "runs"}),
    help="Measure throughput and latency with test records.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
