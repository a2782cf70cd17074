"""Future logs: copies of logs that are being moved to another log directory.  KIP-113.

The future log is in `<partition>.<id>-future` of its new directory and copies the records of the log.  When both have
the same end offset it replaces the log:

    1. thread   sync the future log, and create REPLACED_MARK in the directory of the log
    2. loop     if the end offsets are still equal: rename the future log to the log's name, and the log to `-delete`

After a crash before the first rename both logs exist, and copying continues after the start.  After a crash or a disk
failure between the renames the partition exists twice, and the mark determines which one to use (kctl.storage.finding).
Kafka's LogManager.replaceCurrentWithFutureLog; after such a crash Kafka refuses to start.

Owner: event loop, except for ReplacementPlan.run.
"""

from __future__ import annotations

from collections.abc import Mapping

from kctl.model import TopicPartition
from kctl.storage.files import Files
from kctl.storage.flushing import FlushPlan
from kctl.storage.log import Log
from kctl.storage.log_directory import LogDirectory
from kctl.storage.names import REPLACED_MARK


class ReplacementPlan:
    """Step 1.  Never raises; errors are in `failures`, which apply only if the log and its copy still exist."""

    __slots__ = ("_copy_directory", "_files", "_flush", "_mark", "_text", "failures")

    def __init__(self, files: Files, flush: FlushPlan, *, log: Log, copy: Log) -> None:
        self._files = files
        self._flush = flush
        self._copy_directory = copy.directory
        self._mark = f"{log.directory}/{REPLACED_MARK}"
        self._text = f"{copy.log_directory.path}\n".encode()
        self.failures: list[tuple[str, OSError]] = []

    def run(self) -> None:
        """Sync the future log and mark the log as replaced."""
        path = self._copy_directory
        try:
            self._flush.run()
            path = self._mark
            self._files.write_atomically(self._mark, self._text)
        except OSError as error:
            self.failures.append((path, error))


class FutureLogs:
    """The future logs, and the preferred directories of logs that do not exist yet."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._logs: dict[TopicPartition, Log] = {}
        self._marked: dict[TopicPartition, Log] = {}
        self._preferred: dict[TopicPartition, str] = {}

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """The future logs by partition."""
        return self._logs

    def get(self, tp: TopicPartition) -> Log | None:
        """Return the future log of the partition, if any."""
        return self._logs.get(tp)

    def add(self, tp: TopicPartition, copy: Log) -> None:
        """Add a future log."""
        self._logs[tp] = copy

    def prefer(self, tp: TopicPartition, path: str) -> None:
        """Create the partition's log in this directory, when it is created."""
        self._preferred[tp] = path

    def preferred(self, tp: TopicPartition) -> str | None:
        """Return the directory that is preferred for the log, if any."""
        return self._preferred.get(tp)

    def take_preferred(self, tp: TopicPartition) -> str | None:
        """Return and forget the directory that was preferred for the log, if any."""
        return self._preferred.pop(tp, None)

    def plan_replacement(self, log: Log, copy: Log) -> tuple[FlushPlan, ReplacementPlan]:
        """Return the work to run in a thread before the future log can replace the log.  Raises LogDirFailure."""
        flush = copy.plan_flush()
        return flush, ReplacementPlan(self._files, flush, log=log, copy=copy)

    def marked(self, log: Log, copy: Log) -> None:
        """Record that the plan has run; remove the mark if the future log was deleted meanwhile."""
        self._marked[log.topic_partition] = log
        if self._logs.get(log.topic_partition) is not copy:
            self._unmark(log.topic_partition)

    def is_ready(self, log: Log) -> bool:
        """True if the future log can replace the log now.

        Both have the same end offset, and everything that is synced in the log is synced in the future log.
        """
        tp = log.topic_partition
        copy = self._logs.get(tp)
        return (
            copy is not None
            and self._marked.get(tp) is log
            and copy.log_end_offset == log.log_end_offset
            and copy.log_start_offset == log.log_start_offset
            and copy.recovery_point >= log.recovery_point
        )

    def take_place(self, tp: TopicPartition) -> Log:
        """Rename the future log to the log's name.  Raises OSError; the future log is then unchanged or lost."""
        copy = self._logs[tp]
        target = f"{copy.log_directory.path}/{tp}"
        self._files.rename(copy.directory, target)
        # Sync the new name before the log is removed from its own disk.
        self._files.sync_directory(copy.log_directory.path)
        copy.moved_to(target)
        del self._logs[tp]
        self._marked.pop(tp, None)
        return copy

    def remove(self, tp: TopicPartition) -> Log | None:
        """Forget the future log and remove the mark of the log."""
        copy = self._logs.pop(tp, None)
        self._unmark(tp)
        return copy

    def forget_directory(self, directory: LogDirectory) -> None:
        """Forget the future logs in a directory that went offline; their files stay."""
        for tp in [tp for tp, copy in self._logs.items() if copy.log_directory is directory]:
            copy = self.remove(tp)
            if copy is not None:
                copy.release()

    def _unmark(self, tp: TopicPartition) -> None:
        log = self._marked.pop(tp, None)
        if log is not None and log.log_directory.is_online:
            try:
                self._files.remove(f"{log.directory}/{REPLACED_MARK}")
            except OSError as error:
                log.log_directory.fail(error)
