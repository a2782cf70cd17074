"""Finds the logs in the log directories, and opens all of them at start.  Kafka's LogManager.loadLogs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

from kctl.errors import ConfigError, CorruptLog, LogDirFailure
from kctl.model import TopicPartition
from kctl.storage.checkpointing import close_logs
from kctl.storage.config import LogConfig
from kctl.storage.directories.log_creation import FutureLogs
from kctl.storage.directories.log_directories import LogDirectories, LogDirectoryFiles
from kctl.storage.directories.log_directory import DelayedRemovals, LogDirectory
from kctl.storage.files import Files
from kctl.storage.log.log import Log
from kctl.storage.names import (
    CLEAN_LOGS,
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    DELETE_DIRECTORY_SUFFIX,
    FUTURE_DIRECTORY_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    NOT_A_LOG,
    RECOVERY_POINT_CHECKPOINT,
    REPLACED_MARK,
    delete_directory_name,
    parse_log_directory_name,
)
from kctl.storage.recovery.clean_logs import clean_log_of, parse_clean_logs
from kctl.storage.recovery.recovery import open_log
from kctl.system.environment import Clock, Random

# Finds the logs in a broker's log directories before any of them is opened.
#
# A log is moved to another log directory as a copy, `<partition>.<id>-future`, which replaces the log when it is
# complete (`log_creation`). If the process or a disk fails between the two renames, the partition exists
# twice, and the file REPLACED_MARK in the old directory marks the log that was replaced.


_logger = logging.getLogger(__name__)


class FoundLog(NamedTuple):
    """The directory of a log."""

    tp: TopicPartition
    name: str

    @property
    def is_future(self) -> bool:
        """True for a future log, which has not replaced the log yet."""
        return self.name.endswith(FUTURE_DIRECTORY_SUFFIX)


@dataclass(slots=True)
class FoundLogs:
    """The logs to open."""

    by_directory: dict[str, list[FoundLog]] = field(default_factory=dict)
    """By the path of the log directory."""
    outdated: dict[TopicPartition, str] = field(default_factory=dict)
    """Logs that must not be used while the log directory of their newer copy is offline, with the reason."""


def find_logs(
    directories: Sequence[LogDirectory], *, files: Files, removals: DelayedRemovals, random: Random
) -> FoundLogs:
    """List the logs in all online directories; queue logs marked for deletion for removal, ignore other directories.

    A directory that cannot be read goes offline.  Raises ConfigError when a partition is in two of them.
    """
    search = _Search(directories, files, removals, random)
    for directory in directories:
        with _failing(directory):
            if directory.is_online:
                search.add_directory(directory)
    return search.result()


class _Search:
    """The logs and future logs found so far, by partition."""

    def __init__(
        self, directories: Sequence[LogDirectory], files: Files, removals: DelayedRemovals, random: Random
    ) -> None:
        self._directories = {directory.path: directory for directory in directories}
        self._files = files
        self._removals = removals
        self._random = random
        self._places: dict[TopicPartition, LogDirectory] = {}
        self._copies: dict[TopicPartition, tuple[LogDirectory, str]] = {}

    def add_directory(self, directory: LogDirectory) -> None:
        """Add the logs of one log directory."""
        for entry in self._files.list(directory.path):
            if not entry.is_directory or entry.name in NOT_A_LOG:
                continue
            path = f"{directory.path}/{entry.name}"
            parsed = parse_log_directory_name(entry.name)
            if parsed is None:
                _logger.warning("ignoring directory that is not a log path=%s", path)
            elif parsed[1] == DELETE_DIRECTORY_SUFFIX:
                self._removals.add([path], due_ms=0, is_directory=True)
            elif parsed[1] == FUTURE_DIRECTORY_SUFFIX:
                self._take_copy(parsed[0], directory, entry.name)
            elif parsed[1]:
                _logger.warning("ignoring stray log path=%s", path)
            else:
                self._take(parsed[0], directory)

    def result(self) -> FoundLogs:
        """Return the logs to open."""
        logs = FoundLogs()
        for tp, directory in self._places.items():
            with _failing(directory):
                reason = self._why_outdated(tp, directory) if directory.is_online else None
                logs.by_directory.setdefault(directory.path, []).append(FoundLog(tp, str(tp)))
                if reason is not None:
                    logs.outdated[tp] = reason
        for tp, (directory, name) in self._copies.items():
            if self._places.get(tp) is directory:
                _logger.warning(
                    "ignoring future log, the log is already in this directory path=%s/%s", directory.path, name
                )
            else:
                logs.by_directory.setdefault(directory.path, []).append(FoundLog(tp, name))
        return logs

    def _take_copy(self, tp: TopicPartition, directory: LogDirectory, name: str) -> None:
        if tp in self._copies:
            _logger.warning(
                "ignoring future log, the partition has another one path=%s/%s partition=%s", directory.path, name, tp
            )
        else:
            self._copies[tp] = directory, name

    def _take(self, tp: TopicPartition, directory: LogDirectory) -> None:
        other = self._places.setdefault(tp, directory)
        if other is directory:
            return
        if self._is_replaced(tp, directory):
            self._remove(tp, directory)
        elif self._is_replaced(tp, other):
            self._places[tp] = directory
            with _failing(other):
                self._remove(tp, other)
        else:
            raise ConfigError(
                "log.dirs",
                f"{directory.path}/{tp}",
                f"{tp} is also in {other.path}; remove the copy on the disk that failed while the log was being moved",
            )

    def _is_replaced(self, tp: TopicPartition, directory: LogDirectory) -> bool:
        return self._files.exists(f"{directory.path}/{tp}/{REPLACED_MARK}")

    def _remove(self, tp: TopicPartition, directory: LogDirectory) -> None:
        _logger.info("removing replaced log path=%s/%s", directory.path, tp)
        target = f"{directory.path}/{delete_directory_name(tp, f'{self._random.getrandbits(128):032x}')}"
        self._files.rename(f"{directory.path}/{tp}", target)
        self._removals.add([target], due_ms=0, is_directory=True)

    def _why_outdated(self, tp: TopicPartition, directory: LogDirectory) -> str | None:
        """Return why the log must not be used: it is marked as replaced and its copy is in an offline directory."""
        if not self._is_replaced(tp, directory):
            return None
        mark = f"{directory.path}/{tp}/{REPLACED_MARK}"
        newer = self._directories.get(self._files.read(mark).decode(errors="replace").strip())
        if newer is not None and not newer.is_online:
            return f"the log was being moved to {newer.path}, which is offline; remove {mark} to use this copy"
        self._files.remove(mark)
        return None


@contextmanager
def _failing(directory: LogDirectory) -> Iterator[None]:
    """Take the directory offline on OSError and continue."""
    try:
        yield
    except OSError as error:
        directory.fail(error)


# Opens all logs of the log directories at start. Kafka's LogManager.loadLogs.
#
#     1. find the logs (kctl.storage.recovery.loading)
#     2. for each directory: read its checkpoints and remove the clean shutdown marker, if there is one
#     3. open each log, with recovery if the marker was missing (`recovery`); in parallel with an executor
#     4. leave out logs with a newer copy in an offline directory
#
# If loading is stopped, the logs are closed, and a directory that was clean is left clean.
#
# A directory goes offline if it fails or one of its checkpoints is corrupt; a log that cannot be opened is reported
# as unreadable; the other logs are served. Threads open single logs and change no shared state.


_WRONG_KIND_OF_FILE = (IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors that concern one log, not the disk: the log directory stays online."""


class LoadingStopped(Exception):
    """Loading was stopped before all logs were opened."""


@dataclass(slots=True)
class LoadedLogs:
    """The opened logs."""

    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    unreadable: dict[TopicPartition, str] = field(default_factory=dict)
    """Logs that cannot be used, with the reason."""
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    """High watermarks from the checkpoints."""


def load_logs(
    directories: LogDirectories,
    futures: FutureLogs,
    *,
    config_of: Callable[[str], LogConfig],
    files: Files,
    clock: Clock,
    random: Random,
    removals: DelayedRemovals,
    executor: Executor | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> LoadedLogs:
    """Open the logs of the online directories with the configuration of their topics.

    Future logs are added to `futures`, files that are scheduled for removal to `removals`.  Raises ConfigError when a
    partition is in two directories, and LoadingStopped, after closing the logs, when `is_stopped` returns True.
    """
    loading = _Loading(futures, config_of, files, clock, random, removals, executor, is_stopped)
    return loading.load(directories)


class _Loading:
    """The steps, and the logs opened so far."""

    def __init__(
        self,
        futures: FutureLogs,
        config_of: Callable[[str], LogConfig],
        files: Files,
        clock: Clock,
        random: Random,
        removals: DelayedRemovals,
        executor: Executor | None,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._futures = futures
        self._config_of = config_of
        self._files = files
        self._clock = clock
        self._random = random
        self._removals = removals
        self._executor = executor
        self._is_stopped = is_stopped
        self._loaded = LoadedLogs()
        self._taken: list[tuple[LogDirectoryFiles, bytes | None]] = []
        """The directories whose mark of a clean shutdown was removed, and the content of their CLEAN_LOGS."""

    def load(self, directories: LogDirectories) -> LoadedLogs:
        """Open the logs of all online directories."""
        logs = find_logs(directories.states, files=self._files, removals=self._removals, random=self._random)
        for directory in directories:
            if directory.state.is_online:
                try:
                    self._load_directory(directory, logs.by_directory.get(directory.state.path, []))
                except (OSError, CorruptLog) as error:
                    directory.state.fail(error)
        if self._is_stopped():
            self._close()
            raise LoadingStopped
        for tp, reason in logs.outdated.items():
            log = self._loaded.logs.pop(tp, None)
            if log is not None:
                _logger.error("cannot load log, its partition is offline partition=%s error=%s", tp, reason)
                log.release()
                self._loaded.unreadable[tp] = reason
        return self._loaded

    def _load_directory(self, directory: LogDirectoryFiles, logs: Sequence[FoundLog]) -> None:
        started_ms = self._clock.monotonic_ms()
        marker = directory.path(CLEAN_SHUTDOWN)
        was_clean = self._files.exists(marker)
        directory.recovery_points = directory.read_offsets(self._files, RECOVERY_POINT_CHECKPOINT)
        directory.start_offsets = directory.read_offsets(self._files, LOG_START_OFFSET_CHECKPOINT)
        directory.cleaner_offsets = directory.read_offsets(self._files, CLEANER_CHECKPOINT)
        self._take_high_watermarks(directory.read_offsets(self._files, HIGH_WATERMARK_CHECKPOINT), logs)
        if logs and not was_clean:
            _logger.info("recovering logs after unclean shutdown logs=%d dir=%s", len(logs), directory.state.path)
        clean_logs: dict[str, bytes] = {}
        if was_clean:
            self._files.remove(marker)
            data = self._take_clean_logs(directory.path(CLEAN_LOGS))
            self._taken.append((directory, data))
            if data is not None:
                clean_logs = parse_clean_logs(data, directory.path(CLEAN_LOGS))
        arguments = (logs, repeat(directory), repeat(was_clean), repeat(clean_logs))
        opened = map(self._open, *arguments) if self._executor is None else self._executor.map(self._open, *arguments)
        report_every = max(len(logs) // 10, 100)
        for count, (loading, outcome) in enumerate(zip(logs, opened, strict=True), 1):
            if outcome is None:
                continue
            if not isinstance(outcome, Log):
                _logger.error(
                    "cannot load log, its partition is offline path=%s error=%s", directory.path(loading.name), outcome
                )
                if not loading.is_future:
                    self._loaded.unreadable[loading.tp] = outcome
            elif loading.is_future:
                self._take_copy(loading.tp, outcome, was_clean=was_clean)
            else:
                self._loaded.logs[loading.tp] = outcome
            if count % report_every == 0:
                _logger.info("loading logs loaded=%d logs=%d dir=%s", count, len(logs), directory.state.path)
        if logs and not self._is_stopped():
            took_ms = self._clock.monotonic_ms() - started_ms
            _logger.info("loaded logs logs=%d dir=%s duration_ms=%d", len(logs), directory.state.path, took_ms)

    def _take_clean_logs(self, path: str) -> bytes | None:
        """Return the content of the file, None if it is missing, and remove the file."""
        if not self._files.exists(path):
            return None
        data = self._files.read(path)
        self._files.remove(path)
        return data

    def _close(self) -> None:
        """Close the opened logs, and write the marks of the last clean shutdown again.

        They are still true: the logs that were not opened are as it left them, and a log that was repaired is closed
        now and differs from its line.  The checkpoints were not changed.
        """
        close_logs([*self._loaded.logs.values(), *self._futures.logs.values()], self._files, self._executor)
        for directory, data in self._taken:
            if not directory.state.is_online:
                continue
            try:
                directory.state.check_present(self._files)
                if data is not None:
                    self._files.write_atomically(directory.path(CLEAN_LOGS), data)
                self._files.write_atomically(directory.path(CLEAN_SHUTDOWN), b"")
            except OSError as error:
                directory.state.fail(error)

    def _take_copy(self, tp: TopicPartition, copy: Log, *, was_clean: bool) -> None:
        """Add a future log; after an unclean shutdown its unsynced part may have holes and is copied again."""
        try:
            if not was_clean:
                copy.truncate_to(copy.recovery_point)
            self._futures.add(tp, copy)
        except LogDirFailure:
            copy.release()  # LogDirectory.fail has logged it.

    def _take_high_watermarks(self, offsets: Mapping[TopicPartition, int], logs: Sequence[FoundLog]) -> None:
        """Prefer the checkpoint in the log's own directory; another one may have an entry from before the log was
        moved.
        """
        here = {loading.tp for loading in logs if not loading.is_future}
        for tp, offset in offsets.items():
            if tp in here or tp not in self._loaded.high_watermarks:
                self._loaded.high_watermarks[tp] = offset

    def _open(
        self, log: FoundLog, directory: LogDirectoryFiles, was_clean: bool, clean_logs: Mapping[str, bytes]
    ) -> Log | str | None:
        """Open one log; return the reason if it cannot be opened, None if loading was stopped.  Runs in an executor
        thread, changes no shared state.
        """
        if self._is_stopped():
            return None
        tp = log.tp
        line = clean_logs.get(log.name)
        try:
            return open_log(
                tp,
                directory.path(log.name),
                self._config_of(tp.topic),
                files=self._files,
                log_directory=directory.state,
                removals=self._removals,
                random=self._random,
                now_ms=self._clock.now_ms(),
                was_clean=was_clean,
                recovery_point=directory.recovery_points.get(tp, 0),
                log_start_offset=directory.start_offsets.get(tp, 0),
                clean=None if line is None else clean_log_of(line),
            )
        except CorruptLog as error:
            return str(error)
        except _WRONG_KIND_OF_FILE as error:
            return f"{error.filename}: {error.strerror}"
