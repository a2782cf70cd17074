"""The log directories of a broker: their owner, their locks and their checkpoint files.

Each has a lock that is held while it is open, meta.properties with the broker id and the cluster id of its data, and
four checkpoints.  A directory that cannot be used goes offline; the others are used.  Owner: event loop.
"""

from __future__ import annotations

import logging
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kctl.errors import ApiError, ConfigError, CorruptLog, ErrorCode, LogDirFailure
from kctl.model import TopicPartition
from kctl.storage.directories.log_directory import LogDirectory
from kctl.storage.files import Files, Lock
from kctl.storage.log.log import Log
from kctl.storage.names import CLEANER_CHECKPOINT, LOCK, META_PROPERTIES, RECOVERY_POINT_CHECKPOINT
from kctl.storage.state.checkpoints import MetaProperties, meta_properties_text, parse_meta_properties, parse_offsets

_logger = logging.getLogger(__name__)

_REBUILDABLE_CHECKPOINTS = frozenset({RECOVERY_POINT_CHECKPOINT, CLEANER_CHECKPOINT})
"""Without these files more is recovered or compacted again; no data is lost.

The other checkpoints cannot be rebuilt: without start offsets deleted records would be readable again, without high
watermarks a follower might truncate its log to nothing.  A directory where one of those is corrupt goes offline until
the file is repaired or removed; Apache Kafka does so for all four.
"""


class LogDirectoryLocked(LogDirFailure):
    """Another process is using the log directory."""


@dataclass(slots=True)
class LogDirectoryFiles:
    """A log directory and the content of its files."""

    state: LogDirectory
    lock: Lock | None = None
    meta: MetaProperties | None = None
    recovery_points: dict[TopicPartition, int] = field(default_factory=dict)
    start_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    cleaner_offsets: dict[TopicPartition, int] = field(default_factory=dict)

    def path(self, name: str) -> str:
        """Return the path of a file in the directory."""
        return f"{self.state.path}/{name}"

    def open(self, files: Files) -> None:
        """Create, lock and read the directory; it may be offline afterwards.  Raises LogDirectoryLocked,
        ConfigError.
        """
        state = self.state
        try:
            files.make_directory(state.path)
            self.lock = files.lock(self.path(LOCK))
            path = self.path(META_PROPERTIES)
            if files.exists(path):
                self.meta = parse_meta_properties(files.read(path), path)
        except BlockingIOError as error:
            raise LogDirectoryLocked(
                state.path, "another broker is using this log directory (.lock is locked)"
            ) from error
        except OSError as error:
            state.fail(error)
        except CorruptLog as error:
            raise ConfigError("log.dirs", state.path, str(error)) from error

    def read_offsets(self, files: Files, name: str) -> dict[TopicPartition, int]:
        """Read a checkpoint; a missing one is empty.  Raises OSError, and CorruptLog for a file that cannot be
        rebuilt.
        """
        path = self.path(name)
        if not files.exists(path):
            return {}
        try:
            return parse_offsets(files.read(path), path)
        except CorruptLog as error:
            if name not in _REBUILDABLE_CHECKPOINTS:
                raise
            _logger.error("ignoring corrupt checkpoint file, no records are lost path=%s error=%s", path, error)
            return {}


class LogDirectories:
    """All directories of `log.dirs`, in order, online or not."""

    def __init__(self, paths: Sequence[str], files: Files, on_failure: Callable[[LogDirectory], None]) -> None:
        self._files = files
        self._all = [LogDirectoryFiles(LogDirectory(posixpath.abspath(str(path)), on_failure)) for path in paths]

    def __iter__(self) -> Iterator[LogDirectoryFiles]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def states(self) -> list[LogDirectory]:
        """The state of each directory, in the order of `log.dirs`."""
        return [directory.state for directory in self._all]

    @property
    def online(self) -> list[LogDirectory]:
        """The directories that are online."""
        return [state for state in self.states if state.is_online]

    @property
    def cluster_id(self) -> str | None:
        """The cluster id of the data, None on a first start."""
        return next((directory.meta.cluster_id for directory in self._all if directory.meta is not None), None)

    @property
    def broker_id(self) -> int | None:
        """The broker id of the data, None on a first start."""
        return next((directory.meta.broker_id for directory in self._all if directory.meta is not None), None)

    def open(self) -> None:
        """Open all directories; see LogManager.open_directories."""
        for directory in self._all:
            if directory.lock is None and directory.state.is_online:
                directory.open(self._files)
        self.check_online()
        for name, values in (
            ("cluster.id", {opened.meta.cluster_id for opened in self._all if opened.meta is not None}),
            ("broker.id", {opened.meta.broker_id for opened in self._all if opened.meta is not None}),
        ):
            if len(values) > 1:
                raise ConfigError(
                    "log.dirs", ",".join(state.path for state in self.states), f"different {name}: {values}"
                )

    def check_online(self) -> None:
        """Raise LogDirFailure when no directory is online."""
        if not self.online:
            failed = self._all[0].state
            raise LogDirFailure(failed.path, failed.failure or "no log directory is usable")

    def assign_identity(self, *, broker_id: int, cluster_id: str) -> None:
        """Write meta.properties where it is missing.  Raises ConfigError if an existing one has other ids."""
        meta = MetaProperties(broker_id, cluster_id)
        for directory in self._all:
            if not directory.state.is_online or directory.meta == meta:
                continue
            path = directory.path(META_PROPERTIES)
            stored_meta = directory.meta
            if stored_meta is not None and stored_meta.cluster_id not in {None, cluster_id}:
                raise ConfigError(
                    "log.dirs", directory.state.path, f"{path} belongs to cluster {stored_meta.cluster_id}"
                )
            if stored_meta is not None and stored_meta.broker_id not in {None, broker_id}:
                raise ConfigError("broker.id", broker_id, f"{path} has broker.id {stored_meta.broker_id}")
            try:
                self._files.write_atomically(path, meta_properties_text(meta))
            except OSError as error:
                directory.state.fail(error)
            directory.meta = meta

    def take_failures(self, failures: Iterable[tuple[str, OSError]]) -> None:
        """Take the directories of these failed paths offline; see kctl.storage.log.flushing."""
        for path, error in failures:
            for state in self.states:
                if path.startswith(state.path + "/"):
                    state.fail(error)

    def at(self, path: str) -> LogDirectoryFiles:
        """Return the directory with this path.  Raises ApiError(LOG_DIR_NOT_FOUND)."""
        for directory in self._all:
            if directory.state.path == path:
                return directory
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")

    def of(self, log: Log) -> LogDirectoryFiles:
        """Return the directory of a log."""
        return next(directory for directory in self._all if directory.state is log.log_directory)

    def numbers_of_logs(self, logs: Iterable[Log]) -> Counter[str]:
        """Return the number of logs in each directory by its path, or nothing if only one is online."""
        return Counter(log.log_directory.path for log in logs) if len(self.online) > 1 else Counter()

    def emptiest(self, counts: Counter[str]) -> LogDirectoryFiles:
        """Return the online directory with the fewest logs, the first of several; counts one more there."""
        online = (directory for directory in self._all if directory.state.is_online)
        emptiest = min(online, key=lambda directory: counts[directory.state.path])
        counts[emptiest.state.path] += 1
        return emptiest

    def emptiest_first(self, logs: Iterable[Log]) -> list[LogDirectoryFiles]:
        """Return the online directories by ascending number of logs, ties in the order of `log.dirs`."""
        online = [directory for directory in self._all if directory.state.is_online]
        if len(online) == 1:
            return online
        counts = Counter(log.log_directory.path for log in logs)
        return sorted(online, key=lambda directory: counts[directory.state.path])
