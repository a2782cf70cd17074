"""The engines of an export: Spark, and the processes of this machine.  Both run the same tasks of the same plans."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.util import find_spec

from kctl.errors import KctlError
from kctl.operating_system import usable_processors
from kctl.spark.job import TaskRunner, spark_runner
from kctl.spark.local_pool import LocalSettings, local_runner
from kctl.spark.session import SparkSettings, require_spark

EngineSettings = SparkSettings | LocalSettings


class EngineMissing(KctlError):
    """A package that the local engine needs is not installed."""


def require_engine(settings: EngineSettings) -> None:
    """Raises SparkMissing or EngineMissing, with instructions, if a requirement is missing."""
    if isinstance(settings, SparkSettings):
        require_spark()
        return
    missing = [name for name in ("pyarrow", "numpy") if find_spec(name) is None]
    if missing:
        raise EngineMissing(f"{', '.join(missing)} missing: pip install 'kctl-kafka[export]'")


def start_engine(settings: EngineSettings) -> AbstractContextManager[TaskRunner]:
    """A runner for one export.  Entering it raises SparkFailed, SparkMissing and UsageError."""
    return spark_runner(settings) if isinstance(settings, SparkSettings) else local_runner(settings)


def processes_of_this_machine() -> int:
    """The number of processors that this process may use."""
    return usable_processors()
