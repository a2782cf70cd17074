"""Creates logs: in the event loop, or in a thread, so that the loop does not wait for a disk.

    1. loop     LogCreation.plan: choose a directory for each log
    2. thread   CreationPlan.run: create the files, including those with the topic id and the first leader epoch
    3. loop     LogCreation.take: directories that failed go offline
    4. loop     LogManager.get_or_create: adopt each log when its partition gets its role
    5. loop     LogCreation.discard: forget those that were not adopted

Nothing is served before step 4.  A log that was not adopted is empty, and is opened again when it is needed.  The
caller creates and deletes no other logs of these partitions meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from uuid import UUID

from kctl.errors import ApiError, ErrorCode, LogDirFailure
from kctl.model import TopicPartition, partition_problem
from kctl.storage.config import LogConfig
from kctl.storage.directories.log_directories import LogDirectories, LogDirectoryFiles
from kctl.storage.directories.log_directory import LogDirectory
from kctl.storage.files import Files
from kctl.storage.log.flushing import FlushPlan
from kctl.storage.log.log import Log
from kctl.storage.names import REPLACED_MARK
from kctl.system.environment import Clock
from kctl.system.reference_cycles import copy_of

# Future logs: copies of logs that are being moved to another log directory. KIP-113.
#
# The future log is in `<partition>.<id>-future` of its new directory and copies the records of the log. When both
# have the same end offset it replaces the log:
#
#     1. thread   sync the future log, and create REPLACED_MARK in the directory of the log
#     2. loop     if the end offsets are still equal: rename the future log to the log's name, and the log to `-delete`
#
# After a crash before the first rename both logs exist, and copying continues after the start. After a crash or a disk
# failure between the renames the partition exists twice, and the mark determines which one to use
# (kctl.storage.recovery.loading). Kafka's LogManager.replaceCurrentWithFutureLog; after such a crash Kafka refuses to
# start.
#
# Owner: event loop, except for ReplacementPlan.run.


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
        """Return whether the future log can replace the log now.

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


@dataclass(frozen=True, slots=True)
class NewLog:
    """A log to create."""

    topic_partition: TopicPartition
    config: LogConfig
    topic_id: UUID | None = None
    leader_epoch: int | None = None
    """The epoch in which this broker leads the partition; None if it follows."""
    is_new: bool = True
    """False if the partition may have a log in a directory that is offline."""


class CreationPlan:
    """Step 2.  `run` never raises; errors are in `failures`."""

    __slots__ = ("_works", "created", "failures")

    def __init__(self, works: Sequence[tuple[NewLog, LogDirectory, Callable[[], Log]]]) -> None:
        """`works`: the log, its directory and the function that opens it."""
        self._works = works
        self.created: list[Log] = []
        self.failures: list[tuple[LogDirectory, OSError]] = []

    def __len__(self) -> int:
        return len(self._works)

    def run(self) -> None:
        """Create the files."""
        for new, directory, open_ in self._works:
            log: Log | None = None
            try:
                log = open_()
                log.write_first_metadata(new.topic_id, new.leader_epoch)
            except OSError as error:
                self.failures.append((directory, error))
                if log is not None:
                    log.release()
            else:
                self.created.append(log)


class LogCreation:
    """Creates the logs of a LogManager: in the directory that is preferred for them, else in the one with the fewest.

    Owner: event loop.
    """

    def __init__(
        self,
        directories: LogDirectories,
        logs: Mapping[TopicPartition, Log],
        futures: FutureLogs,
        unreadable: Mapping[TopicPartition, str],
        *,
        files: Files,
        open_: Callable[..., Log],
        retire: Callable[[Log], None],
        clock: Clock,
    ) -> None:
        """`open_` is kctl.storage.recovery.recovery.open_log; `retire` deletes a log that is not needed.

        The mappings are those of the LogManager, which changes them.
        """
        self._directories = directories
        self._logs = logs
        self._futures = futures
        self._unreadable = unreadable
        self._files = files
        self._open = open_
        self._retire = retire
        self._clock = clock
        self._created: dict[TopicPartition, Log] = {}
        """Logs that were created in a thread, until `create` adopts them."""

    def check(self, tp: TopicPartition, *, is_new: bool) -> None:
        """Raise ApiError if the log must not be created, see LogManager.get_or_create."""
        problem = partition_problem(*tp)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if tp in self._unreadable:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self._unreadable[tp])
        online = len(self._directories.online)
        if not online or (not is_new and online < len(self._directories)):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} cannot be created while log directories are offline")

    def create(self, tp: TopicPartition, config: LogConfig, *, is_new: bool) -> Log:
        """Create the log, or adopt it if a thread has.  Raises ApiError and LogDirFailure."""
        adopted = self._adopt(tp, config)
        if adopted is not None:
            return adopted
        self.check(tp, is_new=is_new)
        preferred = self._futures.take_preferred(tp)
        if preferred is not None:
            return self.create_in(self._directories.at(preferred), tp, str(tp), config)
        failure: LogDirFailure | None = None
        for directory in self._directories.emptiest_first(self._all()):
            try:
                return self.create_in(directory, tp, str(tp), config)
            except LogDirFailure as error:
                failure = error
        assert failure is not None
        raise copy_of(failure)

    def create_in(
        self, directory: LogDirectoryFiles, tp: TopicPartition, name: str, config: LogConfig, log_start_offset: int = 0
    ) -> Log:
        """Create the log in a subdirectory `name`.  Raises LogDirFailure."""
        try:
            return self._opener(directory, tp, name, config, log_start_offset)()
        except OSError as error:
            raise directory.state.fail(error) from error

    def plan(self, wanted: Iterable[NewLog]) -> CreationPlan:
        """Return the work to run in a thread before `create` is called for these logs.

        Logs that exist or that cannot be created are not part of it.
        """
        works: list[tuple[NewLog, LogDirectory, Callable[[], Log]]] = []
        counts: Counter[str] | None = None
        for new in wanted:
            tp = new.topic_partition
            try:
                if tp in self._logs:
                    continue
                self.check(tp, is_new=new.is_new)
                preferred = self._futures.preferred(tp)
                if preferred is not None:
                    directory = self._directories.at(preferred)
                else:
                    counts = self._directories.numbers_of_logs(self._all()) if counts is None else counts
                    directory = self._directories.emptiest(counts)
                works.append((new, directory.state, self._opener(directory, tp, str(tp), new.config, 0)))
            except (ApiError, LogDirFailure):
                continue  # `create` raises it.
        return CreationPlan(works)

    def take(self, plan: CreationPlan) -> None:
        """Take the logs for `create`, and failed directories offline."""
        for directory, error in plan.failures:
            directory.fail(error)
        self._created.update((log.topic_partition, log) for log in plan.created)

    def discard(self) -> None:
        """Close the logs that `create` has not adopted."""
        for log in self._created.values():
            log.release()
        self._created.clear()

    def _adopt(self, tp: TopicPartition, config: LogConfig) -> Log | None:
        """Return the log if it was created in a thread and can be used."""
        log = self._created.pop(tp, None)
        if log is None:
            return None
        if self._futures.preferred(tp) not in {None, log.log_directory.path}:
            self._retire(log)  # Another directory was preferred meanwhile.
            return None
        if not log.log_directory.is_online:
            log.release()
            return None
        self._futures.take_preferred(tp)
        log.config = config
        return log

    def _opener(
        self, directory: LogDirectoryFiles, tp: TopicPartition, name: str, config: LogConfig, log_start_offset: int
    ) -> Callable[[], Log]:
        """Return the function that opens or creates a log; it raises OSError.  Raises LogDirFailure."""
        directory.state.check()
        return partial(
            self._open_in,
            directory.state,
            tp,
            directory.path(name),
            config,
            now_ms=self._clock.now_ms(),
            log_start_offset=log_start_offset,
        )

    def _open_in(self, directory: LogDirectory, *args: object, **more: object) -> Log:
        directory.check_present(self._files)
        return self._open(*args, log_directory=directory, **more)

    def _all(self) -> Iterable[Log]:
        return chain(self._logs.values(), self._futures.logs.values())
