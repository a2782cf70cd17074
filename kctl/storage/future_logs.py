"""Logs on their way to another log directory.  KIP-113.

The copy of a log lives in `<partition>.<id>-future` of its new directory and takes in what the log has.  Once both end
at the same offset it takes the log's place:

    1. thread   what the copy holds is synced, and the log gets the mark REPLACED_MARK
    2. loop     if they still end alike: the copy gets the log's name, the log becomes `-delete`

A crash before the first rename leaves the log and its copy, which goes on growing after the start.  A crash, or a disk
that fails, between the two leaves the partition twice, and the mark tells which one to take (kctl.storage.finding).
Kafka's LogManager.replaceCurrentWithFutureLog, whose next start refuses to choose.

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
    """Step 1: never raises; who made it looks at `failures`, if the log and its copy are still there."""

    __slots__ = ("_copy_directory", "_files", "_flush", "_mark", "_text", "failures")

    def __init__(self, files: Files, flush: FlushPlan, *, log: Log, copy: Log) -> None:
        self._files = files
        self._flush = flush
        self._copy_directory = copy.directory
        self._mark = f"{log.directory}/{REPLACED_MARK}"
        self._text = f"{copy.log_directory.path}\n".encode()
        self.failures: list[tuple[str, OSError]] = []

    def run(self) -> None:
        """Sync the copy and mark the log."""
        path = self._copy_directory
        try:
            self._flush.run()
            path = self._mark
            self._files.write_atomically(self._mark, self._text)
        except OSError as error:
            self.failures.append((path, error))


class FutureLogs:
    """The copies, and where logs that do not exist yet shall be."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._logs: dict[TopicPartition, Log] = {}
        self._marked: dict[TopicPartition, Log] = {}
        self._preferred: dict[TopicPartition, str] = {}

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        return self._logs

    def get(self, tp: TopicPartition) -> Log | None:
        return self._logs.get(tp)

    def add(self, tp: TopicPartition, copy: Log) -> None:
        self._logs[tp] = copy

    def prefer(self, tp: TopicPartition, path: str) -> None:
        """The partition's log is to be created in this directory."""
        self._preferred[tp] = path

    def take_preferred(self, tp: TopicPartition) -> str | None:
        """Where the log shall be created, if somebody has asked for that."""
        return self._preferred.pop(tp, None)

    def plan_replacement(self, log: Log, copy: Log) -> tuple[FlushPlan, ReplacementPlan]:
        """What to run before the copy can take the log's place.  Raises LogDirFailure."""
        flush = copy.plan_flush()
        return flush, ReplacementPlan(self._files, flush, log=log, copy=copy)

    def marked(self, log: Log, copy: Log) -> None:
        """The plan has run: the log has its mark, which goes again when the copy has been given up meanwhile."""
        self._marked[log.topic_partition] = log
        if self._logs.get(log.topic_partition) is not copy:
            self._unmark(log.topic_partition)

    def is_ready(self, log: Log) -> bool:
        """Whether the copy can take the log's place now.

        It ends where the log ends, and nothing that is safe on the log's disk is not on that of the copy.
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
        """Give the copy the log's name; from now on it is the log.  Raises OSError, with the copy as it was or lost."""
        copy = self._logs[tp]
        target = f"{copy.log_directory.path}/{tp}"
        self._files.rename(copy.directory, target)
        # The log must not be gone from its disk before the copy has its name on another.
        self._files.sync_directory(copy.log_directory.path)
        copy.moved_to(target)
        del self._logs[tp]
        self._marked.pop(tp, None)
        return copy

    def remove(self, tp: TopicPartition) -> Log | None:
        """Forget the copy, and that the log was to be replaced."""
        copy = self._logs.pop(tp, None)
        self._unmark(tp)
        return copy

    def lose(self, directory: LogDirectory) -> None:
        """The directory went offline: copies in it are given up, where they are."""
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
