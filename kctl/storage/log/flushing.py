"""Flushes a log without blocking the event loop: the files are collected on the loop and synced in a thread.

    plan = log.plan_flush()          loop: open the files to sync
    plan.run()                       any thread: write producer snapshots, fsync; or write(), sync_together, sync()
    log.flushed(plan)                loop: advance the recovery point, rename the snapshots

The recovery point is the offset below which everything is on the disk.  A plan that has run advances it, unless the log
was truncated meanwhile, because later records are in other files.  A truncation lowers it, and so does the closing of a
segment, which writes to its indexes.  With `flush.messages`, records beyond it are unsettled: they must not be
acknowledged before they are on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from kctl.storage.config import LogConfig
from kctl.storage.directories.log_directory import LogDirectory
from kctl.storage.files import File, Files
from kctl.storage.state.producer_snapshots import SnapshotDraft
from kctl.storage.state.producer_state import ProducerEntry, release


class FlushPlan:
    """The files of one log that hold its records up to `offset`.  Changes no state of the event loop."""

    __slots__ = ("_files", "directory", "drafts", "is_synced", "offset", "open_files", "truncations")

    def __init__(
        self,
        files: Files,
        directory: str,
        open_files: Sequence[File],
        *,
        offset: int,
        truncations: int,
        drafts: Sequence[SnapshotDraft] = (),
    ) -> None:
        self._files = files
        self.directory = directory
        """The directory of the log at that time; if it was renamed since, its entries need no sync."""
        self.open_files = list(open_files)
        """The files to sync."""
        self.is_synced = False
        """Whether they were synced together with those of other plans."""
        self.drafts = drafts
        self.offset = offset
        self.truncations = truncations
        """The number of truncations at that time; a plan from before a truncation does not cover later records."""

    def run(self) -> None:
        """Write the snapshots, sync the files, then their directory; close the files.  Once.  Raises OSError."""
        self.write()
        self.sync()

    def write(self) -> None:
        """Write the snapshots.  Once.  Raises OSError."""
        for draft in self.drafts:
            self.open_files += draft.write()

    def sync(self) -> None:
        """Sync the files and their directory, unless that was done, and close them.  Once.  Raises OSError."""
        files, self.open_files = self.open_files, []  # A plan may live longer than its run, and has many of them.
        if not self.is_synced:
            for file in files:
                file.sync()
            self._files.sync_directory(self.directory)


def sync_together(files: Files, plans: Sequence[FlushPlan]) -> None:
    """Sync the files of plans that have written at once, if that takes less time; `sync` of each plan does the rest."""
    with_files = [plan for plan in plans if plan.open_files]
    if files.sync_together([file for plan in with_files for file in plan.open_files]):
        for plan in with_files:
            plan.is_synced = True


class FlushState:
    """The recovery point of a log, and the records that must be flushed before they are acknowledged.  Does no IO."""

    __slots__ = ("is_truncation_unsynced", "last_flush_ms", "recovery_point", "truncations", "unsettled_from")

    def __init__(self, recovery_point: int, now_ms: int) -> None:
        self.recovery_point = recovery_point
        self.last_flush_ms = now_ms
        self.truncations = 0
        """The number of truncations so far."""
        self.is_truncation_unsynced = False
        """True if the indexes on the disk may still have entries of truncated records."""
        self.unsettled_from: int | None = None
        """First offset that `flush.messages` requires to be flushed before it is acknowledged; None if there is
        none.
        """

    def is_time_over(self, now_ms: int, config: LogConfig) -> bool:
        """Return whether `flush.ms` has passed since the last flush and there are unflushed records."""
        return now_ms - self.last_flush_ms >= config.flush_ms

    def is_due(self, now_ms: int, config: LogConfig, *, active_base_offset: int, log_end_offset: int) -> bool:
        """Return whether a closed segment is not synced or `flush.ms` has passed."""
        if self.recovery_point >= log_end_offset:
            return False
        return self.recovery_point < active_base_offset or self.is_time_over(now_ms, config)

    def flushed(self, plan: FlushPlan, config: LogConfig, *, log_end_offset: int, now_ms: int | None) -> None:
        """Advance the recovery point after `plan` has run; without `now_ms` the time of the last flush is unchanged."""
        if plan.truncations == self.truncations:
            self.recovery_point = max(self.recovery_point, plan.offset)
        if self.unsettled_from is not None:
            is_settled = log_end_offset - self.recovery_point < max(config.flush_messages, 1)
            self.unsettled_from = None if is_settled else max(self.unsettled_from, self.recovery_point)
        if now_ms is not None:
            self.last_flush_ms = now_ms

    def segment_closed(self, base_offset: int, *, log_end_offset: int) -> None:
        """Lower the recovery point to the segment, because closing it wrote to its files."""
        self.recovery_point = min(self.recovery_point, max(log_end_offset - 1, base_offset))

    def truncated(self, offset: int) -> None:
        """Lower the recovery point after a truncation to `offset`."""
        self.truncations += 1
        self.recovery_point = min(self.recovery_point, offset)
        if self.unsettled_from is not None and self.unsettled_from >= offset:
            self.unsettled_from = None


# Blocking work on files that the event loop prepares and a thread runs.
#
# A plan consists of values and shares no state, except the locks of the checkpoint files. It never raises: errors are
# in `failures` afterwards, for LogManager.take_failures on the loop.


_plan_numbers = count()


def next_plan_number() -> int:
    """Return the number of a plan whose content is collected from now on."""
    return next(_plan_numbers)


class CheckpointPlan:
    """Replaces checkpoint files, one per log directory.

    Several threads may run plans for the same file.  They are serialised, and a plan that is older than the last one
    written does nothing.
    """

    __slots__ = ("_files", "_number", "_writes", "failures")

    def __init__(
        self,
        files: Files,
        writes: Sequence[tuple[LogDirectory, str, Callable[[], bytes]]],
        number: int | None = None,
    ) -> None:
        """Plan the writes: directory, path and the function that makes the content, which `run` calls.

        `number` is the `next_plan_number` of the time when collecting the content began; None for now.
        """
        self._files = files
        self._number = next_plan_number() if number is None else number
        self._writes = writes
        self.failures: list[tuple[str, OSError]] = []

    def run(self) -> None:
        """Write and sync each file."""
        for directory, path, content in self._writes:
            turns = directory.checkpoint_writers
            with turns.lock:
                if turns.last_written.get(path, -1) > self._number:
                    continue
                try:
                    directory.check_present(self._files)
                    self._files.write_atomically(path, content())
                except OSError as error:
                    self.failures.append((path, error))
                else:
                    turns.last_written[path] = self._number


class RemovalPlan:
    """Removes files and directories, and frees the producers of deleted logs."""

    __slots__ = ("_files", "_paths", "_producers", "failures")

    def __init__(
        self, files: Files, paths: Sequence[tuple[str, bool]], producers: Sequence[list[ProducerEntry]] = ()
    ) -> None:
        self._files = files
        self._paths = paths
        self._producers = producers
        self.failures: list[tuple[str, OSError]] = []

    def __len__(self) -> int:
        return len(self._paths)

    def run(self) -> None:
        """Remove the files; large files take time.  So does freeing 100,000 producers: 20 to 40 ms."""
        for producers in self._producers:
            release(producers)
        for path, is_directory in self._paths:
            try:
                if is_directory:
                    self._files.remove_tree(path)
                else:
                    self._files.remove(path)
            except OSError as error:
                self.failures.append((path, error))
