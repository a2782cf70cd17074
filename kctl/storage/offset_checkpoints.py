"""The checkpoints of a broker's logs: small files that say an offset for each partition, a set in each log directory.

    recovery-point-offset-checkpoint     up to where a log is known to be on the disk; recovery starts there
    log-start-offset-checkpoint          where a log begins, if its first segment does not tell
    replication-offset-checkpoint        the high watermarks, which the caller knows
    cleaner-offset-checkpoint            up to where a log has been compacted

A log's entry is in the directory that the log is in, and nowhere else once it was moved or deleted: a topic of the same
name must start anew.  A file is written whole or not at all, and lists all that is known at that time.

Each `plan_` makes a plan to be run anywhere, after which `LogManager.take_failures` is due; `write_` does both at once.
Kafka's LogManager with its OffsetCheckpointFiles.  Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kctl.model import TopicPartition
from kctl.storage.checkpoints import offsets_text
from kctl.storage.files import Files
from kctl.storage.future_logs import FutureLogs
from kctl.storage.log import Log
from kctl.storage.log_directories import LogDirectories, LogDirectoryFiles
from kctl.storage.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kctl.storage.plans import CheckpointPlan


class OffsetCheckpoints:
    """Those of all log directories."""

    def __init__(
        self, files: Files, directories: LogDirectories, logs: Mapping[TopicPartition, Log], futures: FutureLogs
    ) -> None:
        """`logs` and `futures` are looked at whenever a plan is made."""
        self._files = files
        self._directories = directories
        self._logs = logs
        self._futures = futures

    def plan_recovery_points(self) -> CheckpointPlan:
        """How far each log is known to be on the disk."""
        return self._plan(RECOVERY_POINT_CHECKPOINT, lambda log: log.recovery_point)

    def write_recovery_points(self) -> None:
        self._write(self.plan_recovery_points())

    def plan_log_start_offsets(self) -> CheckpointPlan:
        """The start offsets that the segments alone do not tell."""
        return self._plan(
            LOG_START_OFFSET_CHECKPOINT,
            lambda log: log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None,
        )

    def write_log_start_offsets(self) -> None:
        self._write(self.plan_log_start_offsets())

    def plan_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> CheckpointPlan:
        """The high watermarks of the partitions, each in the directory of its log; copies on their way have none."""
        return self._plan(
            HIGH_WATERMARK_CHECKPOINT,
            lambda log: (
                None if self._futures.get(log.topic_partition) is log else high_watermarks.get(log.topic_partition)
            ),
        )

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        self._write(self.plan_high_watermarks(high_watermarks))

    def cleaner_offset(self, tp: TopicPartition) -> int | None:
        """Up to where the log has been compacted, as checkpointed."""
        directory = self._directory_of(tp)
        return None if directory is None else directory.cleaner_offsets.get(tp)

    def plan_cleaner_offset(self, tp: TopicPartition, offset: int) -> CheckpointPlan | None:
        """The log has been compacted up to `offset`; None when its directory is offline."""
        directory = self._directory_of(tp)
        if directory is None or not directory.state.is_online:
            return None
        directory.cleaner_offsets[tp] = offset
        return self._plan_cleaner_offsets(directory)

    def write_cleaner_offset(self, tp: TopicPartition, offset: int) -> None:
        plan = self.plan_cleaner_offset(tp, offset)
        if plan is not None:
            self._write(plan)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """The partitions have no logs any more."""
        for tp in partitions:
            for directory in self._directories:
                directory.cleaner_offsets.pop(tp, None)
        self._write_all_logs()

    def moved(self, tp: TopicPartition, *, old: LogDirectoryFiles, new: LogDirectoryFiles) -> None:
        """The log is in another directory now, compacted as far as it was."""
        cleaned = old.cleaner_offsets.pop(tp, None)
        if cleaned is not None:
            new.cleaner_offsets[tp] = cleaned
            for directory in (new, old):
                if directory.state.is_online:
                    self._write(self._plan_cleaner_offsets(directory))
        self._write_all_logs()

    def _write_all_logs(self) -> None:
        self.write_recovery_points()
        self.write_log_start_offsets()

    def _plan(self, name: str, offset_of: Callable[[Log], int | None]) -> CheckpointPlan:
        online = self._directories.online
        offsets: dict[str, dict[TopicPartition, int]] = {state.path: {} for state in online}
        for log in (*self._logs.values(), *self._futures.logs.values()):
            offset = offset_of(log)
            if offset is not None and log.log_directory.path in offsets:
                offsets[log.log_directory.path][log.topic_partition] = offset
        writes = [(state, f"{state.path}/{name}", offsets_text(offsets[state.path])) for state in online]
        return CheckpointPlan(self._files, writes)

    def _plan_cleaner_offsets(self, directory: LogDirectoryFiles) -> CheckpointPlan:
        path = directory.path(CLEANER_CHECKPOINT)
        return CheckpointPlan(self._files, [(directory.state, path, offsets_text(directory.cleaner_offsets))])

    def _directory_of(self, tp: TopicPartition) -> LogDirectoryFiles | None:
        log = self._logs.get(tp)
        return None if log is None else self._directories.of(log)

    def _write(self, plan: CheckpointPlan) -> None:
        plan.run()
        self._directories.take_failures(plan.failures)
