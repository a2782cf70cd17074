"""All logs of a broker, in one or more log directories.

Start: open_directories (locks, meta.properties), load (all logs, recovered where the last shutdown was not clean).
Running: get_or_create, delete; create_future, replace_with_future, delete_future for logs that move to another
directory; and what a scheduler calls: apply_retention, plan_flushes, plan_removals, and the plans of `checkpoints`.
Stop: clean_shutdown.

What may block for long comes as a plan, made here and run anywhere (see kctl.storage.plans).  Owner: event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from uuid import UUID

from kctl.environment import Clock, Random
from kctl.errors import ApiError, ErrorCode, LogDirFailure
from kctl.model import ZERO_UUID, TopicPartition, partition_problem
from kctl.storage.closing import close_logs
from kctl.storage.config import LogConfig
from kctl.storage.confined_files import ConfinedFiles
from kctl.storage.files import Files
from kctl.storage.flushing import FlushPlan
from kctl.storage.future_logs import FutureLogs, ReplacementPlan
from kctl.storage.loading import load_logs
from kctl.storage.log import Log
from kctl.storage.log_directories import LogDirectories, LogDirectoryFiles
from kctl.storage.log_directory import DelayedRemovals, LogDirectory
from kctl.storage.names import CLEAN_SHUTDOWN, delete_directory_name, future_directory_name
from kctl.storage.offset_checkpoints import OffsetCheckpoints
from kctl.storage.plans import CheckpointPlan, RemovalPlan
from kctl.storage.recovery import open_log

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
        """`executor` loads and closes many logs at once; without it that is done one after the other."""
        self._files = files = ConfinedFiles(files, log_dirs)
        self._clock = clock
        self._random = random
        self._executor = executor
        self._on_log_dir_failure = on_log_dir_failure
        self.default_config = default_config or LogConfig()
        self._directories = LogDirectories(log_dirs, files, self._directory_failed)
        self._logs: dict[TopicPartition, Log] = {}
        self.futures = FutureLogs(files)
        """Copies of logs on their way to another directory."""
        self.checkpoints = OffsetCheckpoints(files, self._directories, self._logs, self.futures)
        """What files beside the logs say of them."""
        self._removals = DelayedRemovals()
        self.unreadable: dict[TopicPartition, str] = {}
        """Logs that are on the disk but cannot be used, and why; they are never deleted."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        """As they were checkpointed before the start."""

    @property
    def files(self) -> Files:
        """The disk that the logs are on."""
        return self._files

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        return self._logs

    @property
    def directories(self) -> list[LogDirectory]:
        """All of `log.dirs`, in order, online or not."""
        return self._directories.states

    @property
    def online_directories(self) -> list[LogDirectory]:
        return self._directories.online

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the data belongs to, or None on a first start."""
        return self._directories.cluster_id

    @property
    def broker_id(self) -> int | None:
        """The broker that the data belongs to, or None on a first start."""
        return self._directories.broker_id

    # Start

    def open_directories(self) -> None:
        """Create and lock the log directories and read whose they are; calling twice does nothing.

        Raises LogDirectoryLocked; LogDirFailure when none can be used; ConfigError when they belong to different
        brokers or clusters.
        """
        self._directories.open()

    def assign_identity(self, *, broker_id: int, cluster_id: str) -> None:
        """Write meta.properties where it is missing.  Raises ConfigError when it names someone else."""
        self._directories.assign_identity(broker_id=broker_id, cluster_id=cluster_id)

    def load(self, topic_configs: Mapping[str, LogConfig] | None = None) -> None:
        """Open all logs, with the configs of their topics or the default one.

        Raises what open_directories does.  A directory that fails meanwhile, or whose checkpoints cannot be believed,
        goes offline; a log that cannot be read is noted in `unreadable`; the others are served.
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
            executor=self._executor,
        )
        self._logs.update(loaded.logs)
        self.unreadable.update(loaded.unreadable)
        self.high_watermarks.update(loaded.high_watermarks)
        self._directories.check_online()

    # Logs

    def get(self, tp: TopicPartition) -> Log | None:
        return self._logs.get(tp)

    def get_or_create(
        self, tp: TopicPartition, topic_id: UUID | None = None, config: LogConfig | None = None, *, is_new: bool = True
    ) -> Log:
        """The log of the partition, created in the online directory with the fewest logs when there is none.

        Raises LogDirFailure, and ApiError: INVALID_TOPIC_EXCEPTION when there can be no such partition,
        INCONSISTENT_TOPIC_ID when the files are of another topic of that name, KAFKA_STORAGE_ERROR when the log is
        unreadable or might be in an offline directory (`is_new` says it cannot).
        """
        log = self._logs.get(tp)
        if log is None:
            log = self._logs[tp] = self._create(tp, config or self.default_config, is_new=is_new)
        if topic_id is not None and topic_id not in {ZERO_UUID, log.topic_id}:
            if log.topic_id is not None:
                raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{tp} on disk belongs to topic id {log.topic_id}")
            log.assign_topic_id(topic_id)
        return log

    def _create(self, tp: TopicPartition, config: LogConfig, *, is_new: bool) -> Log:
        problem = partition_problem(*tp)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if tp in self.unreadable:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.unreadable[tp])
        self._check_may_create(tp, is_new=is_new)
        preferred = self.futures.take_preferred(tp)
        if preferred is not None:
            return self._create_in(self._directories.at(preferred), tp, str(tp), config)
        failure: LogDirFailure | None = None
        for directory in self._directories.emptiest_first(self._all()):
            try:
                return self._create_in(directory, tp, str(tp), config)
            except LogDirFailure as error:
                failure = error
        assert failure is not None
        raise failure

    def _check_may_create(self, tp: TopicPartition, *, is_new: bool) -> None:
        online = len(self.online_directories)
        if not online or (not is_new and online < len(self._directories)):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} cannot be created while log directories are offline")

    def _create_in(
        self, directory: LogDirectoryFiles, tp: TopicPartition, name: str, config: LogConfig, log_start_offset: int = 0
    ) -> Log:
        directory.state.check()
        try:
            return open_log(
                tp,
                directory.path(name),
                config,
                files=self._files,
                log_directory=directory.state,
                removals=self._removals,
                random=self._random,
                now_ms=self._clock.now_ms(),
                log_start_offset=log_start_offset,
            )
        except OSError as error:
            raise directory.state.fail(error) from error

    def delete(self, *partitions: TopicPartition) -> None:
        """Take logs out of service: their directories are renamed now and removed after `file.delete.delay.ms`.

        The checkpoints forget them at once, so that a topic of the same name starts anew.  Unknown ones are skipped.
        """
        deleted: list[TopicPartition] = []
        for tp in partitions:
            copy, log = self.futures.remove(tp), self._logs.pop(tp, None)
            for each in (copy, log):
                if each is not None:
                    self._retire(each)
            if log is not None:
                self.high_watermarks.pop(tp, None)
                deleted.append(tp)
        self.checkpoints.forget(deleted)

    def _retire(self, log: Log) -> None:
        """Readers may go on with the files until they are removed."""
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

    def _unique(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def _all(self) -> list[Log]:
        """All logs and all copies on their way."""
        return [*self._logs.values(), *self.futures.logs.values()]

    # Moving logs to other directories

    def is_directory_online(self, path: str) -> bool:
        """Raises ApiError(LOG_DIR_NOT_FOUND) when it is none of `log.dirs`."""
        return self._directories.at(path).state.is_online

    def create_future(self, tp: TopicPartition, path: str) -> Log:
        """An empty copy of the log in another directory, beginning where the log begins.

        Raises ApiError: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR while any directory is offline; and LogDirFailure.
        """
        log = self._logs[tp]
        directory = self._directories.at(path)
        assert directory.state is not log.log_directory
        self._check_may_create(tp, is_new=False)
        name = future_directory_name(tp, self._unique())
        copy = self._create_in(directory, tp, name, log.config, log.log_start_offset)
        if log.topic_id is not None:
            copy.assign_topic_id(log.topic_id)
        self.futures.add(tp, copy)
        return copy

    def plan_replacement(self, tp: TopicPartition) -> tuple[FlushPlan, ReplacementPlan]:
        """What has to run before the copy can take the log's place.  Raises LogDirFailure."""
        return self.futures.plan_replacement(self._logs[tp], self.futures.logs[tp])

    def replacement_prepared(self, log: Log, copy: Log, plans: tuple[FlushPlan, ReplacementPlan], now_ms: int) -> None:
        """The plan has run.  What failed takes its directory offline, unless the log or the copy is gone by now."""
        flush, plan = plans
        is_current = self._logs.get(log.topic_partition) is log and self.futures.get(log.topic_partition) is copy
        if plan.failures and is_current:
            self.take_failures(plan)
        elif not plan.failures:
            copy.flushed(flush, now_ms)
            self.futures.marked(log, copy)

    def replace_with_future(self, tp: TopicPartition) -> Log:
        """Let the copy take the log's place; the log's files go `file.delete.delay.ms` later.  Answers the new log.

        The caller has seen FutureLogs.is_ready.  Raises LogDirFailure when the copy's directory fails; then the log
        stays what it is.  When the old directory fails, the copy has taken its place all the same.
        """
        log, copy = self._logs[tp], self.futures.logs[tp]
        for entry in log.leader_epochs.entries:  # An epoch that nothing has been written in is in no batch.
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
        """Give the copy up, if there is one."""
        copy = self.futures.remove(tp)
        if copy is not None:
            self._retire(copy)

    # What a scheduler calls

    def apply_retention(self, now_ms: int, high_watermark_of: Callable[[TopicPartition], int]) -> int:
        """Delete the segments that no log needs any more; returns how many.  Failing directories go offline."""
        deleted = 0
        for log in self._all():
            if log.log_directory.is_online:
                # Of a copy goes what has gone of the log; its own size and age say nothing before it is complete.
                starts_only = self.futures.get(log.topic_partition) is log
                try:
                    deleted += log.delete_old_segments(
                        now_ms, high_watermark_of(log.topic_partition), starts_only=starts_only
                    )
                except LogDirFailure:
                    continue  # The directory has said so in the log.
                except ApiError as error:
                    _logger.error("retention failed log=%s error=%s", log.topic_partition, error)
        return deleted

    def plan_flushes(self, now_ms: int) -> list[tuple[Log, FlushPlan]]:
        """For each log with something due to be synced, the plan; after running it call `log.flushed(plan, now_ms)`."""
        plans: list[tuple[Log, FlushPlan]] = []
        for log in self._all():
            if log.log_directory.is_online:
                try:
                    plan = log.plan_due_flush(now_ms)
                except LogDirFailure:
                    continue  # The directory has said so in the log.
                if plan is not None:
                    plans.append((log, plan))
        return plans

    def plan_removals(self, now_ms: int) -> RemovalPlan:
        """The files and directories whose removal is due."""
        return RemovalPlan(self._files, self._removals.take_due(now_ms))

    def take_failures(self, plan: CheckpointPlan | RemovalPlan | ReplacementPlan) -> None:
        """After a plan has run elsewhere: take the directories offline that failed it."""
        self._directories.take_failures(plan.failures)

    def _directory_failed(self, state: LogDirectory) -> None:
        self.futures.lose(state)
        if self._on_log_dir_failure is not None:
            self._on_log_dir_failure(state.path)

    # Stop

    def clean_shutdown(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Close all logs and leave each online directory with its checkpoints and the mark of a clean shutdown."""
        close_logs(self._all(), self._executor)
        self.checkpoints.write_recovery_points()
        self.checkpoints.write_log_start_offsets()
        if high_watermarks is not None:
            self.checkpoints.write_high_watermarks(high_watermarks)
        for directory in self._directories:
            if directory.state.is_online and directory.lock is not None:
                mark = CheckpointPlan(self._files, [(directory.state, directory.path(CLEAN_SHUTDOWN), b"")])
                mark.run()
                self.take_failures(mark)
        self._logs.clear()
        self.release()

    def release(self) -> None:
        """Give up the locks and the files, as a process does that dies."""
        for log in self._all():
            log.release()
        for directory in self._directories:
            if directory.lock is not None:
                directory.lock.release()
                directory.lock = None
