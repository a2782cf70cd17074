"""Writes the offset checkpoints of a broker while it runs, and closes its logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial

from kctl.errors import LogDirFailure
from kctl.limits import SLICE_OBJECTS
from kctl.model import TopicPartition
from kctl.storage.directories.log_creation import FutureLogs
from kctl.storage.directories.log_directories import LogDirectories, LogDirectoryFiles
from kctl.storage.directories.log_directory import LogDirectory
from kctl.storage.files import Files
from kctl.storage.log.flushing import CheckpointPlan, FlushPlan, next_plan_number, sync_together
from kctl.storage.log.log import Log
from kctl.storage.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kctl.storage.state.checkpoints import offsets_text
from kctl.system.steps import Steps, run_at_once

# The offset checkpoints of a broker: files with an offset per partition, one set in each log directory.
#
#     recovery-point-offset-checkpoint     everything below is on the disk; recovery starts there
#     log-start-offset-checkpoint          the log start offset, if it is not the base offset of the first segment
#     replication-offset-checkpoint        the high watermark, which the caller passes in
#     cleaner-offset-checkpoint            the log has been compacted up to this offset
#
# The entry of a log is in the directory of the log only, and is removed when the log is deleted or moved, because a
# new topic of the same name must start empty. A file is replaced as a whole and contains all entries.
#
# Each `plan_` method is a generator that makes a plan, which can be run in any thread, and after which
# `LogManager.take_failures` must be called; the `write_` methods do all of that. Kafka's LogManager with its
# OffsetCheckpointFiles. Owner: event loop.


PlanSteps = Steps[CheckpointPlan]
"""Makes a plan in steps of SLICE_OBJECTS logs, between which the event loop may serve clients."""


class OffsetCheckpoints:
    """The checkpoints of all log directories."""

    def __init__(
        self, files: Files, directories: LogDirectories, logs: Mapping[TopicPartition, Log], futures: FutureLogs
    ) -> None:
        """Prepare the checkpoints; `logs` and `futures` are read whenever a plan is made."""
        self._files = files
        self._directories = directories
        self._logs = logs
        self._futures = futures

    def plan_recovery_points(self) -> PlanSteps:
        """Make a plan to write the recovery points."""
        return self._plan(RECOVERY_POINT_CHECKPOINT, lambda log: log.recovery_point)

    def write_recovery_points(self) -> None:
        """Write the recovery points."""
        self._write_all(self.plan_recovery_points())

    def plan_log_start_offsets(self) -> PlanSteps:
        """Make a plan to write the log start offsets that differ from the base offset of the first segment."""
        return self._plan(
            LOG_START_OFFSET_CHECKPOINT,
            lambda log: log.log_start_offset if log.log_start_offset > log.first_base_offset else None,
        )

    def write_log_start_offsets(self) -> None:
        """Write the log start offsets."""
        self._write_all(self.plan_log_start_offsets())

    def plan_high_watermarks(self, high_watermark_of: Callable[[TopicPartition], int | None]) -> PlanSteps:
        """Make a plan to write the high watermarks to the directories of their logs; future logs have none."""
        return self._plan(
            HIGH_WATERMARK_CHECKPOINT,
            lambda log: (
                None if self._futures.get(log.topic_partition) is log else high_watermark_of(log.topic_partition)
            ),
        )

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks."""
        self._write_all(self.plan_high_watermarks(high_watermarks.get))

    def cleaner_offset(self, tp: TopicPartition) -> int | None:
        """Return the offset up to which the log has been compacted; None if it was never compacted."""
        directory = self._directory_of(tp)
        return None if directory is None else directory.cleaner_offsets.get(tp)

    def plan_cleaner_offset(self, tp: TopicPartition, offset: int) -> CheckpointPlan | None:
        """Return a plan to write the cleaner offset of a log; None when its directory is offline."""
        directory = self._directory_of(tp)
        if directory is None or not directory.state.is_online:
            return None
        directory.cleaner_offsets[tp] = offset
        return self._plan_cleaner_offsets(directory)

    def write_cleaner_offset(self, tp: TopicPartition, offset: int) -> None:
        """Write the cleaner offset of a log."""
        plan = self.plan_cleaner_offset(tp, offset)
        if plan is not None:
            self._write(plan)

    def forget(self, tp: TopicPartition) -> None:
        """Remove the cleaner offset of a deleted partition; the other entries are those of existing logs."""
        for directory in self._directories:
            directory.cleaner_offsets.pop(tp, None)

    def plan_after_deletions(self) -> list[PlanSteps]:
        """Make plans that remove the entries of deleted logs from all checkpoints but the high watermarks."""
        return [self.plan_recovery_points(), self.plan_log_start_offsets()]

    def write_after_deletions(self) -> None:
        """Run `plan_after_deletions`."""
        for steps in self.plan_after_deletions():
            self._write_all(steps)

    def moved(self, tp: TopicPartition, *, old: LogDirectoryFiles, new: LogDirectoryFiles) -> None:
        """Move the cleaner offset of a log that was moved to another directory."""
        cleaned = old.cleaner_offsets.pop(tp, None)
        if cleaned is not None:
            new.cleaner_offsets[tp] = cleaned
            for directory in (new, old):
                if directory.state.is_online:
                    self._write(self._plan_cleaner_offsets(directory))
        self.write_after_deletions()

    def _plan(self, name: str, offset_of: Callable[[Log], int | None]) -> PlanSteps:
        number = next_plan_number()  # A plan that is begun later, after a deletion for example, replaces this one.
        online = self._directories.online
        offsets: dict[str, dict[TopicPartition, int]] = {state.path: {} for state in online}
        for count, log in enumerate((*self._logs.values(), *self._futures.logs.values()), 1):
            if not count % SLICE_OBJECTS:
                yield
            offset = offset_of(log)
            if offset is not None and log.log_directory.path in offsets:
                offsets[log.log_directory.path][log.topic_partition] = offset
        writes = [(state, f"{state.path}/{name}", partial(offsets_text, offsets[state.path])) for state in online]
        return CheckpointPlan(self._files, writes, number)

    def _plan_cleaner_offsets(self, directory: LogDirectoryFiles) -> CheckpointPlan:
        path = directory.path(CLEANER_CHECKPOINT)
        return CheckpointPlan(
            self._files, [(directory.state, path, partial(offsets_text, dict(directory.cleaner_offsets)))]
        )

    def _directory_of(self, tp: TopicPartition) -> LogDirectoryFiles | None:
        log = self._logs.get(tp)
        return None if log is None else self._directories.of(log)

    def _write_all(self, steps: PlanSteps) -> None:
        """Make the plan and run it."""
        self._write(run_at_once(steps))

    def _write(self, plan: CheckpointPlan) -> None:
        plan.run()
        self._directories.take_failures(plan.failures)


# Closes the logs at shutdown: writes and syncs all state that is in memory only. Kafka's LogManager.shutdown.
#
# A log that cannot be closed takes its directory offline, which then gets no clean shutdown marker. The other logs
# are closed. The files of all logs are released in any case.


_CLOSED_AT_ONCE = 64
"""Files to be synced stay open until they are synced: up to six per log."""


def close_logs(logs: Sequence[Log], files: Files, executor: Executor | None = None) -> None:
    """Leave the files as after a clean shutdown and release them; in parallel if there is an executor."""
    for start in range(0, len(logs), _CLOSED_AT_ONCE):
        _close(logs[start : start + _CLOSED_AT_ONCE], files, executor)


def _close(logs: Sequence[Log], files: Files, executor: Executor | None) -> None:
    plans: list[tuple[Log, FlushPlan]] = []
    for log in logs:
        plan = _plan(log)
        if plan is None:
            log.release()
        else:
            plans.append((log, plan))
    run = map if executor is None else executor.map
    written: dict[LogDirectory, list[tuple[Log, FlushPlan]]] = {}
    for (log, plan), error in zip(plans, run(_failure_of, [plan.write for _, plan in plans]), strict=True):
        if error is None:
            written.setdefault(log.log_directory, []).append((log, plan))
        else:
            log.log_directory.fail(error)
            log.release()
    for in_directory in written.values():
        sync_together(files, [plan for _, plan in in_directory])
        errors = run(_failure_of, [plan.sync for _, plan in in_directory])
        for (log, plan), error in zip(in_directory, errors, strict=True):
            if error is None:
                with suppress(LogDirFailure):  # LogDirectory.fail has logged it.
                    log.flushed(plan)
            else:
                log.log_directory.fail(error)
            log.release()


def _plan(log: Log) -> FlushPlan | None:
    """Return the work to sync the log; None if it needs no sync or its directory is offline or fails now."""
    if not log.log_directory.is_online:
        return None
    try:
        return log.plan_close()
    except LogDirFailure:
        return None


def _failure_of(work: Callable[[], None]) -> OSError | None:
    """Do a part of a plan and return its error.  Called in a thread of the executor; changes no shared state."""
    try:
        work()
    except OSError as error:
        return error
    return None
