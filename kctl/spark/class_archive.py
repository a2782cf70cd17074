"""Archive of the Java classes of an export, which halves the start time of Spark (AppCDS, JEP 350).

Most of the start of a JVM is loading and verifying the same few thousand classes.  A JVM can dump them to a file at its
end, which later JVMs map.  A JVM ignores an archive of another JVM or other jars.
"""

from __future__ import annotations

import hashlib
import os
from importlib.metadata import PackageNotFoundError, version
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
    return base / "kctl" / f"spark-{_fingerprint()}.jsa"


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
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def _fingerprint() -> str:
    """Hash of the versions of JVM and PySpark, so that each combination has its own archive."""
    binary = Path(java() or "java").resolve()
    stamp = binary.stat().st_mtime_ns if binary.exists() else 0
    try:
        pyspark = version("pyspark")
    except PackageNotFoundError:
        pyspark = ""
    home = os.environ.get("SPARK_HOME", "")
    return hashlib.sha256(f"{binary}\0{stamp}\0{pyspark}\0{home}".encode()).hexdigest()[:16]
