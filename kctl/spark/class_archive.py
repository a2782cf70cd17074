"""An archive of the Java classes that an export loads: a start of Spark that takes half as long (AppCDS, JEP 350).

Most of a JVM's start is loading and checking the same few thousand classes.  A JVM that is told so writes them, ready
to be mapped, into a file when it ends; later ones map it.  A file that does not fit the JVM or the jars is ignored by
the JVM.
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
    """Where the archive of this Java and this PySpark is or would be, under the XDG cache home."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "kctl" / f"spark-{_fingerprint()}.jsa"


def use_option() -> str:
    """The JVM option that maps the archive; nothing where nobody has made it."""
    path = archive_path()
    return f"-XX:SharedArchiveFile={path}" if path.is_file() else ""


def make_archive() -> Path:
    """Start Spark once and keep what it loaded.  Raises SparkMissing and SparkFailed."""
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
    """Changes with the JVM and with PySpark, so that an update leads to another archive."""
    binary = Path(java() or "java").resolve()
    stamp = binary.stat().st_mtime_ns if binary.exists() else 0
    try:
        pyspark = version("pyspark")
    except PackageNotFoundError:
        pyspark = ""
    home = os.environ.get("SPARK_HOME", "")
    return hashlib.sha256(f"{binary}\0{stamp}\0{pyspark}\0{home}".encode()).hexdigest()[:16]
