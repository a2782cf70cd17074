"""`kctl tables spark-warmup`."""

from __future__ import annotations

from typing import NamedTuple

import typer

from kctl.commands.frame.command import LocalCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.shown import shows_one
from kctl.tables.engines.session import SparkMissing
from kctl.tables.engines.submission import make_archive

verbs = typer.Typer(add_completion=False)


class ArchiveRow(NamedTuple):
    """The archive of Java classes and its size."""

    archive: str
    bytes: int


@verbs.command("spark-warmup", cls=LocalCommand, epilog=examples("kctl tables spark-warmup"))
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
