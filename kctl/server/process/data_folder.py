"""The data folder of one broker: its lock, its address for other commands, its logs, its embedded ZooKeeper.

Imports little, because commands that only look at a folder, or stop its broker, start in a third of the time then.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from kctl.errors import KctlError
from kctl.system.operating_system import boot_id

# What is in it:
#
# - broker.lock: locked while the process runs; the operating system releases it when the process ends
# - broker.json: the fields of RunningBroker, valid while the lock is held
# - broker.out: output of a detached broker
# - broker.session: the ZooKeeper session of the latest process, with its password, see `FolderSessions`
# - broker.dump: what a running broker writes about itself on SIGUSR1, see `bundle.write_on_signal`
# - logs/: the log directory, unless log.dirs is set
# - zookeeper/: data of the embedded ZooKeeper, if it is used
# - security/: certificates and the password of `kctl broker start --secure`
# - process-N/: with --processes, the data folder of each broker; broker.lock and broker.json are the supervisor's

LOOPBACK = "127.0.0.1"
_PROCESS = "process-"
_LOCK_TRIES = 1000
_LOCK_PAUSE_S = 0.001


class DataFolderError(KctlError):
    """The data folder cannot be used."""


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """The contents of broker.json."""

    pid: int
    host: str
    port: int
    broker_id: int
    zookeeper: str
    started_ms: int
    version: str = ""
    """The version of kctl that runs; empty if it is older than this field and does not handle SIGUSR1."""
    metrics_url: str = ""
    """The URL of the metrics; empty without an endpoint."""
    log_dirs: tuple[str, ...] = ()
    listeners: Mapping[str, str] = field(default_factory=dict)
    """HOST:PORT by the name of the listener, as they are advertised."""
    stop_with: int | None = None
    """The process with whose end it stops; None for none."""
    problem: str = ""
    """Why the broker does not act as leader; empty if it does."""
    processes: int = 0
    """How many brokers this process supervises; 0 for a broker.  Address and id are those of the first one."""

    @property
    def address(self) -> str:
        """HOST:PORT of the broker."""
        return f"{self.host}:{self.port}"


class DataFolder:
    """The paths in a broker's data folder; `acquire` locks it for this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_fd: int | None = None

    @property
    def logs(self) -> Path:
        """The default log directory."""
        return self.path / "logs"

    @property
    def security(self) -> Path:
        """The folder of `kctl broker start --secure`."""
        return self.path / "security"

    @property
    def zookeeper(self) -> Path:
        """The data directory of the embedded ZooKeeper."""
        return self.path / "zookeeper"

    @property
    def output(self) -> Path:
        """The file with the output of a detached broker."""
        return self.path / "broker.out"

    @property
    def session(self) -> Path:
        """The file with the latest ZooKeeper session."""
        return self.path / "broker.session"

    @property
    def dump(self) -> Path:
        """The file that a broker writes on SIGUSR1."""
        return self.path / "broker.dump"

    def acquire(self) -> None:
        """Create and lock the folder.  Raises DataFolderError."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            fd = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataFolderError(
                f"data folder {self.path} cannot be written: {error.strerror}: choose another with --data-dir"
            ) from None
        if not _lock(fd):
            os.close(fd)
            raise self._in_use()
        self._lock_fd = fd

    def refuse_if_locked(self) -> None:
        """Raise DataFolderError if a broker uses the folder, and create nothing."""
        if self.is_locked():
            raise self._in_use()

    def announce(self, running: RunningBroker) -> None:
        """Write broker.json, for `stop` and `status`."""
        temporary = self._state_path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(running)) + "\n", encoding="utf-8")
        temporary.replace(self._state_path)

    def release(self) -> None:
        """Delete broker.json and unlock."""
        if self._lock_fd is not None:
            self._state_path.unlink(missing_ok=True)
            os.close(self._lock_fd)
            self._lock_fd = None

    @property
    def has_lock(self) -> bool:
        """Whether this process has locked the folder."""
        return self._lock_fd is not None

    @property
    def lock_identity(self) -> list[str | int] | None:
        """The running kernel and the file that is locked; None if they cannot be told.

        A copy of the folder has another one, on this machine and on others, and so has the folder after a restart of
        the machine.
        """
        boot = boot_id()
        try:
            file = os.stat(self._lock_path) if self._lock_fd is None else os.fstat(self._lock_fd)
        except OSError:
            return None
        return None if boot is None else [boot, file.st_dev, file.st_ino]

    def is_locked(self) -> bool:
        """Return whether a broker uses the folder: starting, serving or stopping."""
        try:
            fd = os.open(self._lock_path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise DataFolderError(f"data folder {self.path} cannot be read: {error.strerror}") from None
        try:
            return not _flock(fd, fcntl.LOCK_SH)
        finally:
            os.close(fd)

    def running(self) -> RunningBroker | None:
        """Return the broker that serves from this folder, or None."""
        if not self.is_locked():
            return None
        try:
            state: dict[str, Any] = json.loads(self._state_path.read_text(encoding="utf-8"))
            # A newer version may have more fields.
            known = {declared.name for declared in fields(RunningBroker)}
            running = RunningBroker(**{name: value for name, value in state.items() if name in known})
            return replace(running, log_dirs=tuple(running.log_dirs))
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    @property
    def _lock_path(self) -> Path:
        return self.path / "broker.lock"

    @property
    def _state_path(self) -> Path:
        return self.path / "broker.json"

    def _in_use(self) -> DataFolderError:
        running = self.running()
        owner = f"the broker at {running.address} (process {running.pid})" if running else "another process"
        return DataFolderError(
            f"data folder {self.path} is in use by {owner}: stop that broker with "
            f"'kctl broker stop --data-dir {self.path}', or choose another folder with --data-dir"
        )


def process_folder(root: DataFolder, index: int) -> DataFolder:
    """Return the data folder of one of the brokers of `kctl broker start --processes`."""
    return DataFolder(root.path / f"{_PROCESS}{index}")


def process_folders(root: DataFolder) -> list[DataFolder]:
    """Return the data folders of all of them, in order; none for a single broker."""
    numbers = (path.name.removeprefix(_PROCESS) for path in root.path.glob(f"{_PROCESS}*"))
    return [process_folder(root, number) for number in sorted(int(text) for text in numbers if text.isdecimal())]


def brokers_in(root: DataFolder) -> list[tuple[DataFolder, RunningBroker | None]]:
    """Return the broker of a data folder, or those of --processes, each with its own folder."""
    return [(folder, folder.running()) for folder in process_folders(root) or [root]]


def _lock(fd: int) -> bool:
    """Take an exclusive lock.

    `is_locked` takes a shared lock for an instant, and an owner an exclusive one: as long as a shared lock can be taken
    there is no owner, so the attempt is repeated.
    """
    for _ in range(_LOCK_TRIES):
        if _flock(fd, fcntl.LOCK_EX):
            return True
        if not _flock(fd, fcntl.LOCK_SH):
            return False
        fcntl.flock(fd, fcntl.LOCK_UN)
        time.sleep(_LOCK_PAUSE_S)
    return False


def _flock(fd: int, operation: int) -> bool:
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
