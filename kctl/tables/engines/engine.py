"""The engines of an export: Spark, and the processes of this machine.  Both run the same tasks of the same plans."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec

from kctl.output.quantities import counted
from kctl.tables.engines.job import JobProgress, TaskRunner, spark_runner
from kctl.tables.engines.local_pool import LocalSettings, local_runner
from kctl.tables.engines.session import SparkSettings, require_spark
from kctl.tables.exec.targets.target import PackageMissing

EngineSettings = SparkSettings | LocalSettings


def require_engine(settings: EngineSettings) -> None:
    """Raise SparkMissing or PackageMissing, with instructions, if a requirement is missing."""
    if isinstance(settings, SparkSettings):
        require_spark()
        return
    missing = [name for name in ("pyarrow", "numpy") if find_spec(name) is None]
    if missing:
        raise PackageMissing(f"{', '.join(missing)} missing: pip install 'kctl-kafka[export]'")


StartEngine = Callable[[EngineSettings, Callable[[str], None]], AbstractContextManager[TaskRunner]]


def start_engine(settings: EngineSettings, on_note: Callable[[str], None]) -> AbstractContextManager[TaskRunner]:
    """Return a runner for one export, which may call `on_note` with what it waits for.

    Entering it raises SparkFailed, SparkMissing and UsageError.
    """
    return spark_runner(settings, on_note) if isinstance(settings, SparkSettings) else local_runner(settings)


# Formats rate and remaining time of a batch.


_UNITS = ("B", "kB", "MB", "GB", "TB")


class Pace:
    """Rate of one batch.  Owner: the progress display."""

    def __init__(self, offsets_total: int, *, start_s: float) -> None:
        self._total = offsets_total
        self._start_s = start_s
        self._offsets = 0

    def observe(self, done: JobProgress, *, now_s: float) -> tuple[int, str]:
        """Return the processed offsets, never decreasing, and a note with records, bytes, rate and remaining time.

        Between the end of a task and its report to the driver its offsets are missing in `done`.  Files of an
        interrupted run count as done, but have no part in the rates and the remaining time.
        """
        self._offsets = min(max(self._offsets, done.offsets), self._total)
        elapsed_s = now_s - self._start_s
        bytes_in, records = size_text(done.bytes_in), counted(done.records, "record")
        files = f"{done.files_done} of {counted(done.files_total, 'file')}"
        read = self._offsets - done.reused.offsets
        if read <= 0 or elapsed_s <= 0:
            return self._offsets, f"{bytes_in}, {records}, {files}"
        left_s = elapsed_s * (self._total - self._offsets) / read
        rate = f"{size_text((done.bytes_in - done.reused.bytes_in) / elapsed_s)}/s"
        records_rate = f"{(done.records - done.reused.records) / elapsed_s:,.0f} records/s"
        # A terminal cuts the end off.
        return self._offsets, f"{_duration(left_s)} left, {rate}, {bytes_in}, {records}, {files}, {records_rate}"


def size_text(count: float) -> str:
    """Format a number of bytes in decimal units."""
    if count < 1000:
        return f"{count:.0f} B"
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count /= 1000
        unit += 1
    return f"{count:.1f} {_UNITS[unit]}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
