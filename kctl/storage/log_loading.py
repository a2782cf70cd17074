"""Opens all logs of the log directories at start.  Kafka's LogManager.loadLogs.

    1. find the logs (kctl.storage.finding)
    2. for each directory: read its checkpoints and remove the clean shutdown marker, if there is one
    3. open each log, with recovery if the marker was missing (kctl.storage.recovery); in parallel with an executor
    4. leave out logs with a newer copy in an offline directory

A directory goes offline if it fails or one of its checkpoints is corrupt; a log that cannot be opened is reported as
unreadable; the other logs are served.  Threads open single logs and change no shared state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import repeat

from kctl.environment import Clock, Random
from kctl.errors import CorruptLog, LogDirFailure
from kctl.model import TopicPartition
from kctl.storage.config import LogConfig
from kctl.storage.files import Files
from kctl.storage.finding import FoundLog, find_logs
from kctl.storage.future_logs import FutureLogs
from kctl.storage.log import Log
from kctl.storage.log_directories import LogDirectories, LogDirectoryFiles
from kctl.storage.log_directory import DelayedRemovals
from kctl.storage.names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kctl.storage.recovery import open_log

_logger = logging.getLogger(__name__)

_WRONG_KIND_OF_FILE = (IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors that concern one log, not the disk: the log directory stays online."""


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
) -> LoadedLogs:
    """Open the logs of the online directories with the configuration of their topics.

    Future logs are added to `futures`, files that are scheduled for removal to `removals`.  Raises ConfigError when a
    partition is in two directories.
    """
    loading = _Loading(futures, config_of, files, clock, random, removals, executor)
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
    ) -> None:
        self._futures = futures
        self._config_of = config_of
        self._files = files
        self._clock = clock
        self._random = random
        self._removals = removals
        self._executor = executor
        self._loaded = LoadedLogs()

    def load(self, directories: LogDirectories) -> LoadedLogs:
        """Open the logs of all online directories."""
        found = find_logs(directories.states, files=self._files, removals=self._removals, random=self._random)
        for directory in directories:
            if directory.state.is_online:
                try:
                    self._load_directory(directory, found.by_directory.get(directory.state.path, []))
                except (OSError, CorruptLog) as error:
                    directory.state.fail(error)
        for tp, reason in found.outdated.items():
            log = self._loaded.logs.pop(tp, None)
            if log is not None:
                _logger.error("cannot load log, its partition is offline partition=%s error=%s", tp, reason)
                log.release()
                self._loaded.unreadable[tp] = reason
        return self._loaded

    def _load_directory(self, directory: LogDirectoryFiles, found: Sequence[FoundLog]) -> None:
        started_ms = self._clock.monotonic_ms()
        marker = directory.path(CLEAN_SHUTDOWN)
        was_clean = self._files.exists(marker)
        directory.recovery_points = directory.read_offsets(self._files, RECOVERY_POINT_CHECKPOINT)
        directory.start_offsets = directory.read_offsets(self._files, LOG_START_OFFSET_CHECKPOINT)
        directory.cleaner_offsets = directory.read_offsets(self._files, CLEANER_CHECKPOINT)
        self._take_high_watermarks(directory.read_offsets(self._files, HIGH_WATERMARK_CHECKPOINT), found)
        if found and not was_clean:
            _logger.info("recovering logs after unclean shutdown logs=%d dir=%s", len(found), directory.state.path)
        if was_clean:
            self._files.remove(marker)
        arguments = (found, repeat(directory), repeat(was_clean))
        opened = map(self._open, *arguments) if self._executor is None else self._executor.map(self._open, *arguments)
        report_every = max(len(found) // 10, 100)
        for count, (each, outcome) in enumerate(zip(found, opened, strict=True), 1):
            if not isinstance(outcome, Log):
                _logger.error(
                    "cannot load log, its partition is offline path=%s error=%s", directory.path(each.name), outcome
                )
                if not each.is_future:
                    self._loaded.unreadable[each.tp] = outcome
            elif each.is_future:
                self._take_copy(each.tp, outcome, was_clean=was_clean)
            else:
                self._loaded.logs[each.tp] = outcome
            if count % report_every == 0:
                _logger.info("loading logs loaded=%d logs=%d dir=%s", count, len(found), directory.state.path)
        if found:
            took_ms = self._clock.monotonic_ms() - started_ms
            _logger.info("loaded logs logs=%d dir=%s duration_ms=%d", len(found), directory.state.path, took_ms)

    def _take_copy(self, tp: TopicPartition, copy: Log, *, was_clean: bool) -> None:
        """Add a future log; after an unclean shutdown its unsynced part may have holes and is copied again."""
        try:
            if not was_clean:
                copy.truncate_to(copy.recovery_point)
            self._futures.add(tp, copy)
        except LogDirFailure:
            copy.release()  # LogDirectory.fail has logged it.

    def _take_high_watermarks(self, offsets: Mapping[TopicPartition, int], found: Sequence[FoundLog]) -> None:
        """Prefer the checkpoint in the log's own directory; another one may have an entry from before the log was
        moved.
        """
        here = {each.tp for each in found if not each.is_future}
        for tp, offset in offsets.items():
            if tp in here or tp not in self._loaded.high_watermarks:
                self._loaded.high_watermarks[tp] = offset

    def _open(self, found: FoundLog, directory: LogDirectoryFiles, was_clean: bool) -> Log | str:
        """Open one log; return the reason if it cannot be opened.  Runs in an executor thread, changes no shared
        state.
        """
        tp = found.tp
        try:
            return open_log(
                tp,
                directory.path(found.name),
                self._config_of(tp.topic),
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
        except _WRONG_KIND_OF_FILE as error:
            return f"{error.filename}: {error.strerror}"
