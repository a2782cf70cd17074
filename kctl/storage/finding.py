"""Finds the logs in a broker's log directories before any of them is opened.

A log is moved to another log directory as a copy, `<partition>.<id>-future`, which replaces the log when it is complete
(kctl.storage.future_logs).  If the process or a disk fails between the two renames, the partition exists twice, and the
file REPLACED_MARK in the old directory marks the log that was replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from kctl.environment import Random
from kctl.errors import ConfigError
from kctl.model import TopicPartition
from kctl.storage.files import Files
from kctl.storage.log_directory import DelayedRemovals, LogDirectory
from kctl.storage.names import (
    DELETE_DIRECTORY_SUFFIX,
    FUTURE_DIRECTORY_SUFFIX,
    NOT_A_LOG,
    REPLACED_MARK,
    delete_directory_name,
    parse_log_directory_name,
)

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
        found = FoundLogs()
        for tp, directory in self._places.items():
            with _failing(directory):
                reason = self._why_outdated(tp, directory) if directory.is_online else None
                found.by_directory.setdefault(directory.path, []).append(FoundLog(tp, str(tp)))
                if reason is not None:
                    found.outdated[tp] = reason
        for tp, (directory, name) in self._copies.items():
            if self._places.get(tp) is directory:
                _logger.warning(
                    "ignoring future log, the log is already in this directory path=%s/%s", directory.path, name
                )
            else:
                found.by_directory.setdefault(directory.path, []).append(FoundLog(tp, name))
        return found

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
