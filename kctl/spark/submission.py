"""Exports that spark-submit runs, in the cluster or on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import kctl
from kctl.errors import UsageError
from kctl.spark.session import APP_NAME, SparkFailed, SparkSettings, spark_properties

PROGRAM = Path(kctl.__file__).parent / "spark" / "submitted" / "kctl_export.py"
HIDDEN = "[hidden]"

_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""Spark's default of spark.redaction.regex."""


def submit_command(settings: SparkSettings, arguments: Sequence[str], files: Sequence[str] = ()) -> list[str]:
    """The command line of spark-submit for `kctl ARGUMENTS`.

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
    """The command line with the values of secret Spark properties replaced."""
    shown = list(command)
    for index, word in enumerate(command):
        name, is_set, _ = word.partition("=")
        if is_set and index and command[index - 1] == "--conf" and _SECRET.search(name):
            shown[index] = f"{name}={HIDDEN}"
    return shown


def submit(command: Sequence[str]) -> int:
    """Runs spark-submit of the installed PySpark until it ends; its output goes to stderr.  Returns its exit status.

    Raises SparkFailed if it cannot be started.
    """
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415 - takes time, and needs PySpark

    program = Path(_find_spark_home(), "bin", "spark-submit")
    try:
        return subprocess.run([program, *command[1:]], check=False, stdin=subprocess.DEVNULL, stdout=2).returncode
    except OSError as error:
        raise SparkFailed(f"cannot start {program}: {error.strerror}") from None
