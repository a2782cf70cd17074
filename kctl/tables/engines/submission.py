"""Exports that spark-submit runs, and the archive of Java classes that halves their start time."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import kctl
from kctl.errors import UsageError
from kctl.tables.engines.session import (
    APP_NAME,
    ARCHIVE_TIMEOUT_S,
    SparkFailed,
    SparkSettings,
    java,
    require_spark,
    running_spark,
    spark_properties,
)

# Exports that spark-submit runs, in the cluster or on this machine.


PROGRAM = Path(kctl.__file__).parent / "tables" / "submitted" / "kctl_export.py"
HIDDEN = "[hidden]"

_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""Spark's default of spark.redaction.regex."""


def submit_command(settings: SparkSettings, arguments: Sequence[str], files: Sequence[str] = ()) -> list[str]:
    """Return the command line of spark-submit for `kctl ARGUMENTS`.

    `files` are copied into the working folder of the driver.  Raises UsageError for two of the same name.
    """
    if len({os.path.basename(file) for file in files}) < len(files):
        raise UsageError(f"in the driver's folder there can be one file of each name: {', '.join(files)}")
    properties = spark_properties(settings)
    if not settings.is_cluster_mode:
        properties = {"spark.pyspark.driver.python": sys.executable, **properties}
    words = ["spark-submit", "--master", properties.pop("spark.master")]
    words += ["--deploy-mode", "cluster" if settings.is_cluster_mode else "client"]
    words += ["--name", properties.pop("spark.app.name", APP_NAME)]
    for name, value in properties.items():
        words += ["--conf", f"{name}={value}"]
    if files:
        words += ["--files", ",".join(files)]
    return [*words, str(PROGRAM), *arguments]


def without_secrets(command: Sequence[str]) -> list[str]:
    """Return the command line with the values of secret Spark properties replaced."""
    shown = list(command)
    for index, word in enumerate(command):
        name, is_set, _ = word.partition("=")
        if is_set and index and command[index - 1] == "--conf" and _SECRET.search(name):
            shown[index] = f"{name}={HIDDEN}"
    return shown


def submit(command: Sequence[str]) -> int:
    """Run spark-submit of the installed PySpark until it ends; its output goes to stderr.  Return its exit status.

    Raises SparkFailed if it cannot be started.
    """
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415 - takes time, and needs PySpark

    program = Path(_find_spark_home(), "bin", "spark-submit")
    try:
        return subprocess.run([program, *command[1:]], check=False, stdin=subprocess.DEVNULL, stdout=2).returncode
    except OSError as error:
        raise SparkFailed(f"cannot start {program}: {error.strerror}") from None


# Archive of the Java classes of an export, which halves the start time of Spark (AppCDS, JEP 350).
#
# Most of the start of a JVM is loading and verifying the same few thousand classes. A JVM can dump them to a file at
# its end, which later JVMs map. A JVM ignores an archive of another JVM or other jars.


def archive_path() -> Path:
    """Return the path of the archive for this Java and PySpark, in the XDG cache home."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "kctl" / _name()


def use_option() -> str:
    """Return the JVM option that maps the archive; empty if it does not exist."""
    path = archive_path()
    return f"-XX:SharedArchiveFile={path}" if path.is_file() else ""


def make_archive() -> Path:
    """Start Spark once and write the archive.  Raises SparkMissing and SparkFailed."""
    require_spark()
    path = archive_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        option = f"-XX:ArchiveClassesAtExit={unfinished}"
        with running_spark(
            SparkSettings("local[1]"),
            name="kctl tables spark-warmup",
            class_archive_option=option,
            end_timeout_s=ARCHIVE_TIMEOUT_S,
        ) as spark:
            count = spark.context.accumulator(0)
            spark.context.parallelize([1, 2], 2).map(count.add).collect()
        if not unfinished.is_file():
            raise SparkFailed(f"Java wrote no archive of classes within {ARCHIVE_TIMEOUT_S} s")
        unfinished.replace(path)
        for earlier in path.parent.glob(f"{path.stem.rpartition('-')[0]}-*.jsa"):
            if earlier != path:
                earlier.unlink(missing_ok=True)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def _name() -> str:
    """Return the name of the archive for this Java and PySpark.

    The first part stands for their folders, the second for what is installed there.  An archive contains the paths and
    times of the jars: a JVM reads it and then drops it if they are others.
    """
    binary = Path(java() or "java").resolve()
    found = find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (os.path.dirname(found.origin) if found and found.origin else "")
    folders = (binary, Path(home, "jars"))
    times = [path.stat().st_mtime_ns if path.exists() else 0 for path in folders]
    return f"spark-{_digest(*folders)}-{_digest(*times)}.jsa"


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:12]
