"""`kctl spark warmup`."""

from __future__ import annotations

from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.spark import app
from kctl.spark.class_archive import make_archive
from kctl.spark.session import SparkMissing


@app.command("warmup", examples=("kctl spark warmup",))
def warmup(run: Invocation) -> ExitStatus:
    """Make exports start faster on this machine.

    Starts Spark once and keeps an archive of the Java classes that it loaded in the cache folder (about 70 MB).
    Exports use it from then on; after an update of Java or PySpark it has to be made again.
    """
    run.console.note("starting Spark once; this takes about 15 seconds")
    try:
        path = make_archive()
    except SparkMissing as error:
        run.console.fail("SPARK_MISSING", str(error))
        return ExitStatus.FAILED
    run.console.show_one({"archive": str(path), "bytes": path.stat().st_size})
    return ExitStatus.DONE
