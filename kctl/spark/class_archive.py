"""Archive of the Java classes of an export, which halves the start time of Spark (AppCDS, JEP 350).

Most of the start of a JVM is loading and verifying the same few thousand classes.  A JVM can dump them to a file at its
end, which later JVMs map.  A JVM ignores an archive of another JVM or other jars.
"""

from __future__ import annotations

import hashlib
import os
from importlib.util import find_spec
from pathlib import Path

from kctl.spark.session import (
    ARCHIVE_TIMEOUT_S,
    SparkFailed,
    SparkSettings,
    java,
    require_spark,
    running_spark,
)


def archive_path() -> Path:
    """Path of the archive for this Java and PySpark, in the XDG cache home."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "kctl" / _name()


def use_option() -> str:
    """The JVM option that maps the archive; empty if it does not exist."""
    path = archive_path()
    return f"-XX:SharedArchiveFile={path}" if path.is_file() else ""


def make_archive() -> Path:
    """Starts Spark once and writes the archive.  Raises SparkMissing and SparkFailed."""
    require_spark()
    path = archive_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        option = f"-XX:ArchiveClassesAtExit={unfinished}"
        with running_spark(
            SparkSettings("local[1]"),
            name="kctl spark warmup",
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
    """The name of the archive for this Java and PySpark.

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
