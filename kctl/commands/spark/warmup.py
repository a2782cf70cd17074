"""`kctl spark warmup`."""

from __future__ import annotations

from typing import NamedTuple

import typer

from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows_one
from kctl.spark.class_archive import make_archive
from kctl.spark.session import SparkMissing

app = typer.Typer(add_completion=False)


class ArchiveRow(NamedTuple):
    """The archive of Java classes and its size."""

    archive: str
    bytes: int


@app.command("warmup", cls=LocalCommand, epilog=examples("kctl spark warmup"))
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
