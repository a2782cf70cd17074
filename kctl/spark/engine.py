"""The engines of an export: Spark, and the processes of this machine.  Both run the same tasks of the same plans."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec

from kctl.spark.exec.target import PackageMissing
from kctl.spark.job import TaskRunner, spark_runner
from kctl.spark.local_pool import LocalSettings, local_runner
from kctl.spark.session import SparkSettings, require_spark

EngineSettings = SparkSettings | LocalSettings


def require_engine(settings: EngineSettings) -> None:
    """Raises SparkMissing or PackageMissing, with instructions, if a requirement is missing."""
    if isinstance(settings, SparkSettings):
        require_spark()
        return
    missing = [name for name in ("pyarrow", "numpy") if find_spec(name) is None]
    if missing:
        raise PackageMissing(f"{', '.join(missing)} missing: pip install 'kctl-kafka[export]'")


StartEngine = Callable[[EngineSettings, Callable[[str], None]], AbstractContextManager[TaskRunner]]


def start_engine(settings: EngineSettings, on_note: Callable[[str], None]) -> AbstractContextManager[TaskRunner]:
    """A runner for one export, which may call `on_note` with what it waits for.

    Entering it raises SparkFailed, SparkMissing and UsageError.
    """
    return spark_runner(settings, on_note) if isinstance(settings, SparkSettings) else local_runner(settings)
