"""`kctl spark export`: `kctl export` with Spark as its default engine."""

from __future__ import annotations

import typer

from kctl.commands.command import ClusterCommand, examples
from kctl.commands.export.command import export

app = typer.Typer(add_completion=False)

app.command(
    "export",
    cls=ClusterCommand,
    epilog=examples(
        "kctl spark export orders --to /data/orders",
        "kctl spark export orders payments --to /data/shop --from @2026-11-01 --include-headers",
        "kctl spark export orders --to /data/orders --dry-run",
        "kctl spark export orders --to /shared/orders --master spark://10.0.0.7:7077 --conf spark.executor.memory=4g",
    ),
)(export)
