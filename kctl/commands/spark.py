"""`kctl spark`: export topics to Parquet with Apache Spark."""

from __future__ import annotations

from typing import NamedTuple

import typer

from kctl.commands.export.command import export
from kctl.commands.frame.command import ClusterCommand, LocalCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.lazy_group import verb_group
from kctl.commands.frame.output.shown import shows_one
from kctl.tables.engines.session import SparkMissing
from kctl.tables.engines.submission import make_archive

app = typer.Typer(
    cls=verb_group(__name__, ["export", "warmup"]),
    help="Export topics to Parquet with Apache Spark.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)


# `kctl spark export`: `kctl export` with Spark as its default engine.


verbs = typer.Typer(add_completion=False)

verbs.command(
    "export",
    cls=ClusterCommand,
    epilog=examples(
        "kctl spark export orders --to /data/orders",
        "kctl spark export orders payments --to /data/shop --from @2026-11-01 --include-headers",
        "kctl spark export orders --to /data/orders --dry-run",
        "kctl spark export orders --to /shared/orders --master spark://10.0.0.7:7077 --conf spark.executor.memory=4g",
    ),
)(export)


# `kctl spark warmup`.


class ArchiveRow(NamedTuple):
    """The archive of Java classes and its size."""

    archive: str
    bytes: int


@verbs.command("warmup", cls=LocalCommand, epilog=examples("kctl spark warmup"))
@shows_one(ArchiveRow)
def warmup(ctx: typer.Context) -> ExitStatus:
    """Make exports on this machine start faster.

    Starts Spark once and writes the Java classes that it loads to an archive in the cache folder (about 70 MB), which
    exports use from then on.  Repeat it after an update of Java or PySpark.
    """
    run: Invocation = ctx.obj
    run.console.note("starting Spark once; this takes about 15 seconds")
    try:
        path = make_archive()
    except SparkMissing as error:
        run.console.fail("SPARK_MISSING", str(error))
        return ExitStatus.FAILED
    run.console.show_one(ArchiveRow(str(path), path.stat().st_size))
    return ExitStatus.DONE
