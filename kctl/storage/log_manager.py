"""All logs of a broker, in one or more log directories.  Kafka's LogManager.

Start: open_directories (locks, meta.properties), load (all logs, with recovery after an unclean shutdown).
Running: get_or_create, delete; `creation` for logs that are created in a thread; create_future, replace_with_future,
delete_future for logs that are moved to another directory; and for a scheduler: apply_retention, plan_flushes,
plan_removals, and the plans of `checkpoints`.
Stop: clean_shutdown.

Work that may block for long is returned as a plan, which can be run in any thread (kctl.storage.log.flushing).  Owner:
event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from uuid import UUID

from kctl.errors import ApiError, ErrorCode, LogDirFailure
from kctl.model import ZERO_UUID, TopicPartition
from kctl.storage.checkpointing import OffsetCheckpoints, close_logs
from kctl.storage.config import LogConfig
from kctl.storage.directories.log_creation import FutureLogs, LogCreation, ReplacementPlan
from kctl.storage.directories.log_directories import LogDirectories
from kctl.storage.directories.log_directory import DelayedRemovals, LogDirectory
from kctl.storage.files import ConfinedFiles, Files
from kctl.storage.log.flushing import CheckpointPlan, FlushPlan, RemovalPlan
from kctl.storage.log.log import Log
from kctl.storage.names import CLEAN_LOGS, CLEAN_SHUTDOWN, delete_directory_name, future_directory_name
from kctl.storage.recovery.clean_logs import CleanLog, clean_log, clean_logs_text
from kctl.storage.recovery.loading import load_logs
from kctl.storage.recovery.recovery import open_log
from kctl.system.environment import Clock, Random

_logger = logging.getLogger(__name__)


class LogManager:
    """The logs of one broker."""

    def __init__(
        self,
        log_dirs: Sequence[str],
        *,
        files: Files,
        clock: Clock,
        random: Random,
        default_config: LogConfig | None = None,
        executor: Executor | None = None,
        on_log_dir_failure: Callable[[str], None] | None = None,
    ) -> None:
        self._files = files = ConfinedFiles(files, log_dirs)
        self._clock = clock
        self._random = random
        self.executor = executor
        """Opens and closes logs in parallel; None for one at a time."""
        self._on_log_dir_failure = on_log_dir_failure
        self.default_config = default_config or LogConfig()
        self._directories = LogDirectories(log_dirs, files, self._directory_failed)
        self._logs: dict[TopicPartition, Log] = {}
        self._by_topic: dict[str, set[int]] = {}
        """The partitions of the logs, so that a change of one topic does not visit all logs."""
        self.futures = FutureLogs(files)
        """Future logs: copies of logs that are being moved to another directory."""
        self.checkpoints = OffsetCheckpoints(files, self._directories, self._logs, self.futures)
        """The checkpoint files of all log directories."""
        self._removals = DelayedRemovals()
        self.unreadable: dict[TopicPartition, str] = {}
        """Logs on the disk that cannot be used, with the reason; their files are never deleted."""
        self.creation = LogCreation(
            self._directories,
            self._logs,
            self.futures,
            self.unreadable,
            files=files,
            open_=partial(open_log, files=files, removals=self._removals, random=random),
            retire=self._retire,
            clock=clock,
        )
        """Creates logs, in the event loop or in a thread."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        """High watermarks from the checkpoints, as read at start."""
        self.is_loaded = False
        """Whether `load` has returned."""
        self._is_stopped = False

    @property
    def files(self) -> ConfinedFiles:
        """The file system of the logs."""
        return self._files

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """The logs by partition, without future logs."""
        return self._logs

    @property
    def directories(self) -> list[LogDirectory]:
        """All directories of `log.dirs`, in order, online or not."""
        return self._directories.states

    @property
    def online_directories(self) -> list[LogDirectory]:
        """The directories that are online."""
        return self._directories.online

    @property
    def cluster_id(self) -> str | None:
        """The cluster id of the data, None on a first start."""
        return self._directories.cluster_id

    @property
    def broker_id(self) -> int | None:
        """The broker id of the data, None on a first start."""
        return self._directories.broker_id

    # Start

    def open_directories(self) -> None:
        """Create and lock the log directories and read their meta.properties; calling twice does nothing.

        Raises LogDirectoryLocked; LogDirFailure when none can be used; ConfigError when they belong to different
        brokers or clusters.
        """
        self._directories.open()

    def assign_identity(self, *, broker_id: int, cluster_id: str) -> None:
        """Write meta.properties where it is missing.  Raises ConfigError if an existing one has other ids."""
        self._directories.assign_identity(broker_id=broker_id, cluster_id=cluster_id)

    def load(self, topic_configs: Mapping[str, LogConfig] | None = None) -> None:
        """Open all logs with the configuration of their topics, or the default one.

        Raises as open_directories does, and LoadingStopped after `stop_loading`.  A directory that fails or has a
        corrupt checkpoint goes offline; a log that cannot be opened is added to `unreadable`; the other logs are
        served.
        """
        self.open_directories()
        configs = topic_configs or {}
        loaded = load_logs(
            self._directories,
            self.futures,
            config_of=lambda topic: configs.get(topic, self.default_config),
            files=self._files,
            clock=self._clock,
            random=self._random,
            removals=self._removals,
            executor=self.executor,
            is_stopped=lambda: self._is_stopped,
        )
        for tp, log in loaded.logs.items():
            self._add(tp, log)
        self.unreadable.update(loaded.unreadable)
        self.high_watermarks.update(loaded.high_watermarks)
        self._directories.check_online()
        self.is_loaded = True

    def stop_loading(self) -> None:
        """Let `load`, which runs in another thread, open no further logs and close the others; wait for its end."""
        self._is_stopped = True

    # Logs

    def get(self, tp: TopicPartition) -> Log | None:
        """Return the log of the partition, None if there is none."""
        return self._logs.get(tp)

    def of_topic(self, topic: str) -> list[Log]:
        """Return the logs and future logs of a topic."""
        partitions = [TopicPartition(topic, number) for number in self._by_topic.get(topic, ())]
        found = [log for tp in partitions for log in (self._logs.get(tp), self.futures.get(tp))]
        return [log for log in found if log is not None]

    def _add(self, tp: TopicPartition, log: Log) -> None:
        self._logs[tp] = log
        self._by_topic.setdefault(tp.topic, set()).add(tp.partition)

    def _remove(self, tp: TopicPartition) -> Log | None:
        log = self._logs.pop(tp, None)
        if log is not None:
            numbers = self._by_topic[tp.topic]
            numbers.discard(tp.partition)
            if not numbers:
                del self._by_topic[tp.topic]
        return log

    def get_or_create(
        self, tp: TopicPartition, topic_id: UUID | None = None, config: LogConfig | None = None, *, is_new: bool = True
    ) -> Log:
        """Return the log of the partition; create it in the online directory with the fewest logs if there is none.

        Raises LogDirFailure, and ApiError: INVALID_TOPIC_EXCEPTION for an invalid topic or partition,
        INCONSISTENT_TOPIC_ID when the log belongs to another topic of that name, KAFKA_STORAGE_ERROR when the log is
        unreadable or may be in an offline directory (`is_new` excludes the latter).
        """
        log = self._logs.get(tp)
        if log is None:
            log = self.creation.create(tp, config or self.default_config, is_new=is_new)
            self._add(tp, log)
        if topic_id is not None and topic_id not in {ZERO_UUID, log.topic_id}:
            if log.topic_id is not None:
                raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{tp} on disk belongs to topic id {log.topic_id}")
            log.assign_topic_id(topic_id)
        return log

    def delete(self, *partitions: TopicPartition) -> None:
        """Delete logs: their directories are renamed now and removed after `file.delete.delay.ms`.

        They are removed from the checkpoints at once, so that a new topic of the same name starts empty.  Unknown
        partitions are ignored.
        """
        self.retire(*partitions)
        self.checkpoints.write_after_deletions()

    def retire(self, *partitions: TopicPartition) -> bool:
        """As `delete`, without writing checkpoints: the caller runs OffsetCheckpoints.plan_after_deletions before
        these partitions can be created again.  Return whether there was a log.
        """
        has_retired = False
        for tp in partitions:
            copy, log = self.futures.remove(tp), self._remove(tp)
            for closed_log in (copy, log):
                if closed_log is not None:
                    self._retire(closed_log)
            if log is not None:
                self.high_watermarks.pop(tp, None)
                self.checkpoints.forget(tp)
                has_retired = True
        return has_retired

    def _retire(self, log: Log) -> None:
        """Rename the log's directory; readers can use open files until they are removed."""
        log.release()
        if not log.log_directory.is_online:
            return
        name = delete_directory_name(log.topic_partition, self._unique())
        target = f"{log.log_directory.path}/{name}"
        try:
            self._files.rename(log.directory, target)
        except OSError as error:
            log.log_directory.fail(error)
            return
        log.moved_to(target)
        due_ms = self._clock.now_ms() + log.config.file_delete_delay_ms
        self._removals.add([target], due_ms=due_ms, is_directory=True)
        if log.producer_state.producers:
            self._removals.keep(log.producer_state.capture(), due_ms=due_ms)

    def _unique(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def all(self) -> list[Log]:
        """Return all logs and future logs."""
        return [*self._logs.values(), *self.futures.logs.values()]

    def is_current(self, log: Log) -> bool:
        """Return whether the log, or future log, was not deleted or replaced."""
        tp = log.topic_partition
        return self._logs.get(tp) is log or self.futures.get(tp) is log

    # Moving logs to other directories

    def is_directory_online(self, path: str) -> bool:
        """Return whether the directory is online.  Raises ApiError(LOG_DIR_NOT_FOUND) if it is not in `log.dirs`."""
        return self._directories.at(path).state.is_online

    def create_future(self, tp: TopicPartition, path: str) -> Log:
        """Create an empty future log in another directory, with the start offset of the log.

        Raises ApiError: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR while any directory is offline; and LogDirFailure.
        """
        log = self._logs[tp]
        directory = self._directories.at(path)
        assert directory.state is not log.log_directory
        self.creation.check(tp, is_new=False)
        name = future_directory_name(tp, self._unique())
        copy = self.creation.create_in(directory, tp, name, log.config, log.log_start_offset)
        if log.topic_id is not None:
            copy.assign_topic_id(log.topic_id)
        self.futures.add(tp, copy)
        return copy

    def plan_replacement(self, tp: TopicPartition) -> tuple[FlushPlan, ReplacementPlan]:
        """Return the work to run in a thread before the future log can replace the log.  Raises LogDirFailure."""
        return self.futures.plan_replacement(self._logs[tp], self.futures.logs[tp])

    def replacement_prepared(self, log: Log, copy: Log, plans: tuple[FlushPlan, ReplacementPlan], now_ms: int) -> None:
        """Record that the plans have run.  Failures take directories offline, unless the log or the copy was
        deleted.
        """
        flush, plan = plans
        is_current = self._logs.get(log.topic_partition) is log and self.futures.get(log.topic_partition) is copy
        if plan.failures and is_current:
            self.take_failures(plan)
        elif not plan.failures:
            copy.flushed(flush, now_ms)
            self.futures.marked(log, copy)

    def replace_with_future(self, tp: TopicPartition) -> Log:
        """Replace the log by its future log and return the latter; the old files are removed after
        `file.delete.delay.ms`.

        The caller has checked FutureLogs.is_ready.  Raises LogDirFailure when the directory of the future log fails;
        the log is then unchanged.  If the old directory fails, the log is replaced all the same.
        """
        log, copy = self._logs[tp], self.futures.logs[tp]
        # An epoch without records is in no batch, so it is not copied with the records.
        for entry in log.leader_epochs.entries:
            if entry.epoch > copy.leader_epochs.latest_epoch:
                copy.assign_epoch(entry.epoch, entry.start_offset)
        copy.log_directory.check()
        left = copy.directory
        try:
            self._logs[tp] = self.futures.take_place(tp)
        except OSError as error:
            raise copy.log_directory.fail(error) from error
        self._removals.moved(left, copy.directory)
        self._retire(log)
        self.checkpoints.moved(tp, old=self._directories.of(log), new=self._directories.of(copy))
        return copy

    def delete_future(self, tp: TopicPartition) -> None:
        """Delete the future log, if there is one."""
        copy = self.futures.remove(tp)
        if copy is not None:
            self._retire(copy)

    # Called by a scheduler

    def apply_retention(
        self, now_ms: int, high_watermark_of: Callable[[TopicPartition], int], logs: Iterable[Log] | None = None
    ) -> int:
        """Delete the segments that retention allows to delete; return their number.  Failing directories go
        offline.

        `logs` are some of `all`; those that were deleted meanwhile are left out.
        """
        deleted = 0
        for log in self.all() if logs is None else logs:
            if log.log_directory.is_online and self.is_current(log):
                # A future log is incomplete: only the log start offset counts, not its size and age.
                starts_only = self.futures.get(log.topic_partition) is log
                try:
                    deleted += log.delete_old_segments(
                        now_ms, high_watermark_of(log.topic_partition), starts_only=starts_only
                    )
                except LogDirFailure:
                    continue  # LogDirectory.fail has logged it.
                except ApiError as error:
                    _logger.error(
                        "cannot delete old segments, trying again with the next check log=%s error=%s",
                        log.topic_partition,
                        error,
                    )
        return deleted

    def plan_flushes(self, now_ms: int, logs: Iterable[Log] | None = None) -> Iterator[tuple[Log, FlushPlan]]:
        """Yield a plan for each log with a flush that is due; after running it call `log.flushed(plan, now_ms)`.

        `logs` are some of `all`; those that were deleted meanwhile are left out.  Run each plan before the next one is
        made: its files are open.
        """
        for log in self.all() if logs is None else logs:
            if log.log_directory.is_online and self.is_current(log):
                try:
                    plan = log.plan_due_flush(now_ms)
                except LogDirFailure:
                    continue  # LogDirectory.fail has logged it.
                if plan is not None:
                    yield log, plan

    def plan_removals(self, now_ms: int) -> RemovalPlan:
        """Return a plan to remove the files and directories that are due."""
        return RemovalPlan(self._files, self._removals.take_due(now_ms), self._removals.take_due_producers(now_ms))

    def take_failures(self, plan: CheckpointPlan | RemovalPlan | ReplacementPlan) -> None:
        """Take the directories offline in which the plan failed."""
        self._directories.take_failures(plan.failures)

    def _directory_failed(self, state: LogDirectory) -> None:
        self.futures.forget_directory(state)
        if self._on_log_dir_failure is not None:
            self._on_log_dir_failure(state.path)

    # Stop

    def clean_shutdown(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Close all logs; write the checkpoints and the clean shutdown marker of each online directory."""
        close_logs(self.all(), self._files, self.executor)
        clean = self._clean_logs()
        self.checkpoints.write_recovery_points()
        self.checkpoints.write_log_start_offsets()
        if high_watermarks is not None:
            self.checkpoints.write_high_watermarks(high_watermarks)
        marks: dict[str, Callable[[str], bytes]] = {
            CLEAN_LOGS: lambda path: clean_logs_text(clean[path]),
            CLEAN_SHUTDOWN: lambda _: b"",
        }
        for name, content_of in marks.items():
            for directory in self._directories:
                if directory.state.is_online and directory.lock is not None:
                    content = partial(content_of, directory.state.path)
                    mark = CheckpointPlan(self._files, [(directory.state, directory.path(name), content)])
                    mark.run()
                    self.take_failures(mark)
        self._logs.clear()
        self._by_topic.clear()
        self.release()

    def _clean_logs(self) -> dict[str, list[CleanLog]]:
        """Return the closed logs that the next start can open without reading their files, by log directory."""
        found: dict[str, list[CleanLog]] = {state.path: [] for state in self._directories.states}
        for log in self._logs.values():
            if log.log_directory.is_online:
                try:
                    clean = clean_log(log, self._files)
                except OSError as error:
                    log.log_directory.fail(error)
                    continue
                if clean is not None:
                    found[log.log_directory.path].append(clean)
        return found

    def release(self) -> None:
        """Release locks and files without writing anything, as a killed process does."""
        for log in self.all():
            log.release()
        for directory in self._directories:
            if directory.lock is not None:
                directory.lock.release()
                directory.lock = None
