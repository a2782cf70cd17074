"""Flushing a log without holding up its owner: collect on the loop what to sync, sync it anywhere, take note of it.

    plan = log.plan_flush()          loop: opens what is to be synced
    plan.run()                       any thread: fsync, nothing else
    log.flushed(plan)                loop: the recovery point moves

The recovery point is the offset below which everything is known to be on the disk.  A plan that has run moves it up,
unless the log was truncated meanwhile: what came after has other files.  A truncation takes it back, and so does the
closing of a segment, which writes to its indexes once more.  With `flush.messages` records beyond it are not settled:
nobody may be told of them before they are on the disk.
"""

from __future__ import annotations

from collections.abc import Sequence

from kctl.storage.config import LogConfig
from kctl.storage.files import File, Files


class FlushPlan:
    """Files of one log that hold its records up to `offset`.  Touches nothing that belongs to the loop."""

    __slots__ = ("_files", "_open_files", "directory", "offset", "truncations")

    def __init__(
        self, files: Files, directory: str, open_files: Sequence[File], *, offset: int, truncations: int
    ) -> None:
        self._files = files
        self.directory = directory
        """Where the log was; when it has been renamed meanwhile, its names there are nobody's business any more."""
        self._open_files = open_files
        self.offset = offset
        self.truncations = truncations
        """How often the log had been truncated; a plan from before a truncation proves nothing about what follows."""

    def run(self) -> None:
        """Sync all files, then their names.  Raises OSError."""
        for file in self._open_files:
            file.sync()
        self._files.sync_directory(self.directory)


class FlushState:
    """How far a log is known to be on the disk, and which of its records wait for that.  Does no IO."""

    __slots__ = ("is_truncation_unsynced", "last_flush_ms", "recovery_point", "truncations", "unsettled_from")

    def __init__(self, recovery_point: int, now_ms: int) -> None:
        self.recovery_point = recovery_point
        self.last_flush_ms = now_ms
        self.truncations = 0
        """How often records at the end have been taken away."""
        self.is_truncation_unsynced = False
        """Whether the indexes on the disk may still have entries of records that were taken away."""
        self.unsettled_from: int | None = None
        """Where the records start that `flush.messages` wants on the disk before anybody is told of them."""

    def is_time_over(self, now_ms: int, config: LogConfig) -> bool:
        """Whether `flush.ms` asks for a flush of all records."""
        return now_ms - self.last_flush_ms >= config.flush_ms

    def is_due(self, now_ms: int, config: LogConfig, *, active_base_offset: int, log_end_offset: int) -> bool:
        """Whether a closed segment waits to be synced, or `flush.ms` is over."""
        if self.recovery_point >= log_end_offset:
            return False
        return self.recovery_point < active_base_offset or self.is_time_over(now_ms, config)

    def flushed(self, plan: FlushPlan, config: LogConfig, *, log_end_offset: int, now_ms: int | None) -> None:
        """`plan` has run; without `now_ms` the time of the last flush stays what it is."""
        if plan.truncations == self.truncations:
            self.recovery_point = max(self.recovery_point, plan.offset)
        if self.unsettled_from is not None:
            is_settled = log_end_offset - self.recovery_point < max(config.flush_messages, 1)
            self.unsettled_from = None if is_settled else max(self.unsettled_from, self.recovery_point)
        if now_ms is not None:
            self.last_flush_ms = now_ms

    def segment_closed(self, base_offset: int, *, log_end_offset: int) -> None:
        """Its files, which may all have been synced, have been written to: it has to be synced once more."""
        self.recovery_point = min(self.recovery_point, max(log_end_offset - 1, base_offset))

    def truncated(self, offset: int) -> None:
        """The log ends at `offset` now, or starts over there."""
        self.truncations += 1
        self.recovery_point = min(self.recovery_point, offset)
        if self.unsettled_from is not None and self.unsettled_from >= offset:
            self.unsettled_from = None
