"""All logs of a broker, in one or more log directories.

Start: open_directories (locks, meta.properties), load (all logs, recovered where the last shutdown was not clean).
Running: get_or_create, delete; and what a scheduler calls: apply_retention, plan_flushes, plan_removals, checkpoints.
Stop: clean_shutdown.

What may block for long comes as a plan, made here and run anywhere (see kctl.storage.plans); each has a method of the
same name without `plan_` that runs it at once.  Owner: event loop.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import repeat
from uuid import UUID

from kctl.environment import Clock, Random
from kctl.errors import ApiError, ConfigError, CorruptLog, ErrorCode, LogDirFailure
from kctl.model import ZERO_UUID, TopicPartition
from kctl.storage.checkpoints import (
    MetaProperties,
    meta_properties_text,
    offsets_text,
    parse_meta_properties,
    parse_offsets,
)
from kctl.storage.config import LogConfig
from kctl.storage.files import Files, Lock
from kctl.storage.flushing import FlushPlan
from kctl.storage.log import Log
from kctl.storage.log_directory import DelayedRemovals, LogDirectory
from kctl.storage.names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    DELETE_DIRECTORY_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    NOT_A_LOG,
    RECOVERY_POINT_CHECKPOINT,
    delete_directory_name,
    parse_log_directory_name,
)
from kctl.storage.plans import CheckpointPlan, RemovalPlan
from kctl.storage.recovery import open_log

_logger = logging.getLogger(__name__)


_CHECKPOINTS_TO_DO_WITHOUT = frozenset({RECOVERY_POINT_CHECKPOINT, CLEANER_CHECKPOINT})
"""Without them more is read, or compacted, again.  What the others say nobody could find out: without start offsets
deleted records would come back, without high watermarks a follower might cut its log to nothing.  A directory where one
of those is damaged goes offline until the file is repaired or removed; Apache Kafka does so for all four."""


class LogDirectoryLocked(LogDirFailure):
    """Another process uses the log directory."""


@dataclass(slots=True)
class _Directory:
    """A log directory with what its files say."""

    state: LogDirectory
    lock: Lock | None = None
    meta: MetaProperties | None = None
    recovery_points: dict[TopicPartition, int] = field(default_factory=dict)
    start_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    cleaner_offsets: dict[TopicPartition, int] = field(default_factory=dict)

    def path(self, name: str) -> str:
        return f"{self.state.path}/{name}"


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
        """`executor` loads many logs at once; without it they are loaded one after the other."""
        self._files = files
        self._clock = clock
        self._random = random
        self._executor = executor
        self._on_log_dir_failure = on_log_dir_failure
        self.default_config = default_config or LogConfig()
        self._directories = [
            _Directory(LogDirectory(_absolute(str(path)), self._directory_failed)) for path in log_dirs
        ]
        self._logs: dict[TopicPartition, Log] = {}
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
        return [directory.state for directory in self._directories]

    @property
    def online_directories(self) -> list[LogDirectory]:
        return [state for state in self.directories if state.is_online]

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the data belongs to, or None on a first start."""
        return next((found.meta.cluster_id for found in self._directories if found.meta is not None), None)

    @property
    def broker_id(self) -> int | None:
        """The broker that the data belongs to, or None on a first start."""
        return next((found.meta.broker_id for found in self._directories if found.meta is not None), None)

    # Start

    def open_directories(self) -> None:
        """Create and lock the log directories and read whose they are; calling twice does nothing.

        Raises LogDirectoryLocked; LogDirFailure when none can be used; ConfigError when they belong to different
        brokers or clusters.
        """
        for directory in self._directories:
            if directory.lock is None and directory.state.is_online:
                self._open_directory(directory)
        self._check_online()
        for name, values in (
            ("cluster.id", {found.meta.cluster_id for found in self._directories if found.meta is not None}),
            ("broker.id", {found.meta.broker_id for found in self._directories if found.meta is not None}),
        ):
            if len(values) > 1:
                raise ConfigError("log.dirs", ",".join(d.path for d in self.directories), f"different {name}: {values}")

    def _check_online(self) -> None:
        if not self.online_directories:
            failed = self._directories[0].state
            raise LogDirFailure(failed.path, failed.failure or "no log directory is usable")

    def _open_directory(self, directory: _Directory) -> None:
        state = directory.state
        try:
            self._files.make_directory(state.path)
            directory.lock = self._files.lock(directory.path(LOCK))
            path = directory.path(META_PROPERTIES)
            if self._files.exists(path):
                directory.meta = parse_meta_properties(self._files.read(path), path)
        except BlockingIOError as error:
            raise LogDirectoryLocked(state.path, "another broker uses this log directory (it holds .lock)") from error
        except OSError as error:
            state.fail(error)
        except CorruptLog as error:
            raise ConfigError("log.dirs", state.path, str(error)) from error

    def assign_identity(self, *, broker_id: int, cluster_id: str) -> None:
        """Write meta.properties where it is missing.  Raises ConfigError when it names someone else."""
        meta = MetaProperties(broker_id, cluster_id)
        for directory in self._directories:
            if not directory.state.is_online or directory.meta == meta:
                continue
            path = directory.path(META_PROPERTIES)
            found = directory.meta
            if found is not None and found.cluster_id not in {None, cluster_id}:
                raise ConfigError("log.dirs", directory.state.path, f"{path} is of cluster {found.cluster_id}")
            if found is not None and found.broker_id not in {None, broker_id}:
                raise ConfigError("broker.id", broker_id, f"{path} says {found.broker_id}")
            try:
                self._files.write_atomically(path, meta_properties_text(meta))
            except OSError as error:
                directory.state.fail(error)
            directory.meta = meta

    def load(self, topic_configs: Mapping[str, LogConfig] | None = None) -> None:
        """Open all logs, with the configs of their topics or the default one.

        Raises what open_directories does.  A directory that fails meanwhile, or whose checkpoints cannot be believed,
        goes offline; a log that cannot be read is noted in `unreadable`; the others are served.
        """
        self.open_directories()
        configs = topic_configs or {}
        for directory in self._directories:
            if directory.state.is_online:
                try:
                    self._load_directory(directory, configs)
                except (OSError, CorruptLog) as error:
                    directory.state.fail(error)
        self._check_online()

    def _load_directory(self, directory: _Directory, configs: Mapping[str, LogConfig]) -> None:
        started_ms = self._clock.monotonic_ms()
        marker = directory.path(CLEAN_SHUTDOWN)
        was_clean = self._files.exists(marker)
        directory.recovery_points = self._read_offsets(directory, RECOVERY_POINT_CHECKPOINT)
        directory.start_offsets = self._read_offsets(directory, LOG_START_OFFSET_CHECKPOINT)
        directory.cleaner_offsets = self._read_offsets(directory, CLEANER_CHECKPOINT)
        self.high_watermarks.update(self._read_offsets(directory, HIGH_WATERMARK_CHECKPOINT))
        found = self._find_logs(directory)
        if found and not was_clean:
            _logger.info("Recovering %d logs in %s after an unclean shutdown", len(found), directory.state.path)
        if was_clean:
            self._files.remove(marker)
        arguments = (found, repeat(directory), repeat(configs), repeat(was_clean))
        opened = map(self._open, *arguments) if self._executor is None else self._executor.map(self._open, *arguments)
        report_every = max(len(found) // 10, 100)
        for count, (tp, outcome) in enumerate(zip(found, opened, strict=True), 1):
            if isinstance(outcome, Log):
                self._logs[tp] = outcome
            else:
                _logger.error("Log %s cannot be used: %s", tp, outcome)
                self.unreadable[tp] = outcome
            if count % report_every == 0:
                _logger.info("Loaded %d of %d logs in %s", count, len(found), directory.state.path)
        if found:
            took_ms = self._clock.monotonic_ms() - started_ms
            _logger.info("Loaded %d logs in %s in %d ms", len(found), directory.state.path, took_ms)

    def _open(
        self, tp: TopicPartition, directory: _Directory, configs: Mapping[str, LogConfig], was_clean: bool
    ) -> Log | str:
        """One log, or why it cannot be used.  Runs in a thread of the executor and touches nothing shared."""
        try:
            return open_log(
                tp,
                directory.path(str(tp)),
                configs.get(tp.topic, self.default_config),
                files=self._files,
                log_directory=directory.state,
                removals=self._removals,
                random=self._random,
                now_ms=self._clock.now_ms(),
                was_clean=was_clean,
                recovery_point=directory.recovery_points.get(tp, 0),
                log_start_offset=directory.start_offsets.get(tp, 0),
            )
        except CorruptLog as error:
            return str(error)

    def _find_logs(self, directory: _Directory) -> list[TopicPartition]:
        """The logs of the directory; what waits for removal is queued, what is neither is left alone."""
        found: list[TopicPartition] = []
        for entry in self._files.list(directory.state.path):
            if not entry.is_directory or entry.name in NOT_A_LOG:
                continue
            parsed = parse_log_directory_name(entry.name)
            if parsed is None:
                _logger.warning("Ignoring %s, which is not the directory of a log", directory.path(entry.name))
            elif parsed[1] == DELETE_DIRECTORY_SUFFIX:
                self._removals.add([directory.path(entry.name)], due_ms=0, is_directory=True)
            elif parsed[1]:
                _logger.warning("Ignoring %s: moving logs is not supported", directory.path(entry.name))
            elif parsed[0] in self._logs:
                other = self._logs[parsed[0]].directory
                raise ConfigError("log.dirs", directory.path(entry.name), f"{parsed[0]} is in {other} as well")
            else:
                found.append(parsed[0])
        return found

    def _read_offsets(self, directory: _Directory, name: str) -> dict[TopicPartition, int]:
        path = directory.path(name)
        if not self._files.exists(path):
            return {}
        try:
            return parse_offsets(self._files.read(path), path)
        except CorruptLog as error:
            if name not in _CHECKPOINTS_TO_DO_WITHOUT:
                raise
            _logger.error("Starting without a checkpoint, which costs time but no records: %s", error)
            return {}

    # Logs

    def get(self, tp: TopicPartition) -> Log | None:
        return self._logs.get(tp)

    def get_or_create(
        self, tp: TopicPartition, topic_id: UUID | None = None, config: LogConfig | None = None, *, is_new: bool = True
    ) -> Log:
        """The log of the partition, created in the online directory with the fewest logs when there is none.

        Raises LogDirFailure, and ApiError: INCONSISTENT_TOPIC_ID when the files are of another topic of that name,
        KAFKA_STORAGE_ERROR when the log is unreadable or might be in an offline directory (`is_new` says it cannot).
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
        if tp in self.unreadable:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.unreadable[tp])
        online = [directory for directory in self._directories if directory.state.is_online]
        if not online or (not is_new and len(online) < len(self._directories)):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} cannot be created while log directories are offline")
        counts = dict.fromkeys((directory.state.path for directory in online), 0)
        if len(online) > 1:
            for log in self._logs.values():
                if log.log_directory.path in counts:
                    counts[log.log_directory.path] += 1
        directory = min(online, key=lambda candidate: counts[candidate.state.path])
        try:
            return open_log(
                tp,
                directory.path(str(tp)),
                config,
                files=self._files,
                log_directory=directory.state,
                removals=self._removals,
                random=self._random,
                now_ms=self._clock.now_ms(),
            )
        except OSError as error:
            raise directory.state.fail(error) from error

    def delete(self, *partitions: TopicPartition) -> None:
        """Take logs out of service: their directories are renamed now and removed after `file.delete.delay.ms`.

        The checkpoints forget them at once, so that a topic of the same name starts anew.  Unknown ones are skipped.
        """
        for tp in partitions:
            log = self._logs.pop(tp, None)
            if log is None:
                continue
            log.release()
            if not log.log_directory.is_online:
                continue
            unique = f"{self._random.getrandbits(128):032x}"
            target = f"{log.log_directory.path}/{delete_directory_name(tp, unique)}"
            try:
                self._files.rename(log.directory, target)
            except OSError as error:
                log.log_directory.fail(error)
                continue
            due_ms = self._clock.now_ms() + log.config.file_delete_delay_ms
            self._removals.add([target], due_ms=due_ms, is_directory=True)
            self.high_watermarks.pop(tp, None)
            for directory in self._directories:
                directory.cleaner_offsets.pop(tp, None)
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()

    # What a scheduler calls

    def apply_retention(self, now_ms: int, high_watermark_of: Callable[[TopicPartition], int]) -> int:
        """Delete the segments that no log needs any more; returns how many.  Failing directories go offline."""
        deleted = 0
        for log in list(self._logs.values()):
            if log.log_directory.is_online:
                try:
                    deleted += log.delete_old_segments(now_ms, high_watermark_of(log.topic_partition))
                except LogDirFailure:
                    continue  # The directory has said so in the log.
                except ApiError as error:
                    _logger.error("Retention of %s failed: %s", log.topic_partition, error)
        return deleted

    def plan_flushes(self, now_ms: int) -> list[tuple[Log, FlushPlan]]:
        """For each log with something due to be synced, the plan; after running it call `log.flushed(plan, now_ms)`."""
        plans: list[tuple[Log, FlushPlan]] = []
        for log in list(self._logs.values()):
            if log.log_directory.is_online and log.needs_flush(now_ms):
                try:
                    by_time = now_ms - log.last_flush_ms >= log.config.flush_ms
                    plans.append((log, log.plan_flush(closed_segments_only=not by_time)))
                except LogDirFailure:
                    continue
        return plans

    def plan_removals(self, now_ms: int) -> RemovalPlan:
        """The files and directories whose removal is due."""
        return RemovalPlan(self._files, self._removals.take_due(now_ms))

    def remove_due_files(self, now_ms: int) -> None:
        self._run(self.plan_removals(now_ms))

    def plan_recovery_point_checkpoint(self) -> CheckpointPlan:
        """How far each log is known to be on the disk."""
        return self._plan_checkpoint(RECOVERY_POINT_CHECKPOINT, lambda log: log.recovery_point)

    def checkpoint_recovery_points(self) -> None:
        self._run(self.plan_recovery_point_checkpoint())

    def plan_log_start_offset_checkpoint(self) -> CheckpointPlan:
        """The start offsets that the segments alone do not tell."""
        return self._plan_checkpoint(
            LOG_START_OFFSET_CHECKPOINT,
            lambda log: log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None,
        )

    def checkpoint_log_start_offsets(self) -> None:
        self._run(self.plan_log_start_offset_checkpoint())

    def plan_high_watermark_checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> CheckpointPlan:
        """The high watermarks of the partitions, each in the directory of its log."""
        return self._plan_checkpoint(HIGH_WATERMARK_CHECKPOINT, lambda log: high_watermarks.get(log.topic_partition))

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        self._run(self.plan_high_watermark_checkpoint(high_watermarks))

    def _plan_checkpoint(self, name: str, offset_of: Callable[[Log], int | None]) -> CheckpointPlan:
        offsets: dict[str, dict[TopicPartition, int]] = {state.path: {} for state in self.online_directories}
        for log in self._logs.values():
            offset = offset_of(log)
            if offset is not None and log.log_directory.path in offsets:
                offsets[log.log_directory.path][log.topic_partition] = offset
        writes = [
            (state, f"{state.path}/{name}", offsets_text(offsets[state.path])) for state in self.online_directories
        ]
        return CheckpointPlan(self._files, writes)

    def _run(self, plan: CheckpointPlan | RemovalPlan) -> None:
        plan.run()
        self.take_failures(plan)

    def take_failures(self, plan: CheckpointPlan | RemovalPlan) -> None:
        """After a plan has run elsewhere: take the directories offline that failed it."""
        for path, error in plan.failures:
            for state in self.directories:
                if path.startswith(state.path + "/"):
                    state.fail(error)

    def cleaner_offset(self, tp: TopicPartition) -> int | None:
        """Up to where the log has been compacted, as checkpointed."""
        directory = self._directory_of(tp)
        return None if directory is None else directory.cleaner_offsets.get(tp)

    def checkpoint_cleaner_offset(self, tp: TopicPartition, offset: int) -> None:
        """Remember up to where the log has been compacted."""
        plan = self.plan_cleaner_checkpoint(tp, offset)
        if plan is not None:
            self._run(plan)

    def plan_cleaner_checkpoint(self, tp: TopicPartition, offset: int) -> CheckpointPlan | None:
        """The log has been compacted up to `offset`; None when its directory is offline."""
        directory = self._directory_of(tp)
        if directory is None or not directory.state.is_online:
            return None
        directory.cleaner_offsets[tp] = offset
        path = directory.path(CLEANER_CHECKPOINT)
        return CheckpointPlan(self._files, [(directory.state, path, offsets_text(directory.cleaner_offsets))])

    def _directory_of(self, tp: TopicPartition) -> _Directory | None:
        log = self._logs.get(tp)
        if log is None:
            return None
        return next((found for found in self._directories if found.state is log.log_directory), None)

    def _directory_failed(self, state: LogDirectory) -> None:
        if self._on_log_dir_failure is not None:
            self._on_log_dir_failure(state.path)

    # Stop

    def clean_shutdown(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Close all logs and leave each online directory with its checkpoints and the mark of a clean shutdown."""
        for log in list(self._logs.values()):
            if log.log_directory.is_online:
                try:
                    log.close()
                except LogDirFailure:
                    continue
            else:
                log.release()
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        if high_watermarks is not None:
            self.write_high_watermarks(high_watermarks)
        for directory in self._directories:
            if directory.state.is_online and directory.lock is not None:
                self._run(CheckpointPlan(self._files, [(directory.state, directory.path(CLEAN_SHUTDOWN), b"")]))
        self._logs.clear()
        self.release()

    def release(self) -> None:
        """Give up the locks and the files, as a process does that dies."""
        for log in self._logs.values():
            log.release()
        for directory in self._directories:
            if directory.lock is not None:
                directory.lock.release()
                directory.lock = None


def _absolute(path: str) -> str:
    return posixpath.abspath(path)
