"""A broker on this machine: its port, its data folder and, unless ZooKeeper is configured, an embedded one.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kctl import __version__
from kctl.config.addresses import address_text
from kctl.config.dynamic import ConfigView
from kctl.errors import KctlError, NoNodeError
from kctl.server.broker.broker import Broker
from kctl.server.loop.tasks import in_thread
from kctl.server.network.world import real_world
from kctl.system.operating_system import boot_id
from kctl.system.user_files import replace_private
from kctl.zookeeper import paths
from kctl.zookeeper.embedded.server import EmbeddedZooKeeper
from kctl.zookeeper.operations import SessionKey
from kctl.zookeeper.security import zookeeper_security
from kctl.zookeeper.session import ZooKeeperSession
from kctl.zookeeper.znodes import decode_config, encode_config

# The data folder of one broker: its lock, its address for other commands, its logs, its embedded ZooKeeper.
#
# broker.lock locked while the process runs; the operating system releases it when the process ends broker.json the
# fields of RunningBroker, valid while the lock is held broker.out output of a detached broker broker.session the
# ZooKeeper session of the latest process, with its password, see `FolderSessions` broker.dump what a running broker
# writes about itself on SIGUSR1, see `state_dump` logs/ the log directory, unless log.dirs is set zookeeper/ data of
# the embedded ZooKeeper, if it is used security/ certificates and the password of `kctl broker start --secure`
# process-N/ with --processes: the data folder of each broker; broker.lock and broker.json are the supervisor's


log = logging.getLogger(__name__)

_PROCESS = "process-"
_SESSION_BYTES_MAX = 4_096
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


class _Kept(NamedTuple):
    """The content of broker.session."""

    key: SessionKey
    lock: object
    """The lock_identity of the folder when the process ran."""
    had_own_zookeeper: bool


class FolderSessions:
    """`registration.EndedSessions` in a file of the data folder.

    The proof that the process with the latest session has ended: it had locked the file that this process has locked
    now, under the same kernel.  For a session with the ZooKeeper of the broker's own process no proof is needed: it
    ended with that process, and a process with a copy of the folder has a ZooKeeper of its own.
    """

    def __init__(self, folder: DataFolder, *, has_own_zookeeper: bool) -> None:
        self._folder = folder
        self._has_own_zookeeper = has_own_zookeeper

    def latest_ended(self) -> SessionKey | None:
        """See registration.EndedSessions.latest_ended."""
        kept = self._kept()
        if kept is None or not self._folder.has_lock:
            return None
        is_proven = self._is_of_this_folder(kept) or (self._has_own_zookeeper and kept.had_own_zookeeper)
        return kept.key if is_proven else None

    def has_used(self, session_id: int) -> bool:
        """Return whether the latest process of this folder used the session, and not one of a folder that it is a copy
        of.
        """
        kept = self._kept()
        return kept is not None and kept.key.session_id == session_id and self._is_of_this_folder(kept)

    def _is_of_this_folder(self, kept: _Kept) -> bool:
        return kept.lock is not None and kept.lock == self._folder.lock_identity

    def _kept(self) -> _Kept | None:
        try:
            with self._folder.session.open("rb") as file:
                kept = json.loads(file.read(_SESSION_BYTES_MAX))
            key = SessionKey(int(kept["session_id"], 16), bytes.fromhex(kept["password"]))
            return _Kept(key, kept["lock"], kept["own_zookeeper"] is True)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            log.warning("ignoring an unreadable file path=%s error=%s", self._folder.session, type(error).__name__)
            return None

    def keep(self, key: SessionKey) -> None:
        """See registration.EndedSessions.keep.  Without the file, the next start waits for the session to expire."""
        kept = {
            "session_id": f"{key.session_id:x}",
            "password": key.password.hex(),
            "lock": self._folder.lock_identity,
            "own_zookeeper": self._has_own_zookeeper,
        }
        try:
            # A crash of the machine after which the file is lost ends the validity of what is in it, too.
            replace_private(self._folder.session, json.dumps(kept).encode() + b"\n", is_durable=False)
        except OSError as error:
            log.warning("cannot write a file path=%s error=%s", self._folder.session, error)


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


LOOPBACK = "127.0.0.1"


async def store_user(connect: str, configs: ConfigView, user: str, config: Mapping[str, str]) -> None:
    """Merge the properties into the configuration of the user in ZooKeeper.  Raises ZooKeeperError."""
    security = await in_thread(partial(zookeeper_security, configs.static))
    session = ZooKeeperSession(connect, security=security)
    await session.start(configs.current.zookeeper_connection_timeout)
    path = paths.config_entity(f"users/{user}")
    try:
        try:
            data, stat = await session.get(path)
            merged = {**decode_config(path, data), **config}
            await session.set(path, encode_config(merged), version=stat.version)
        except NoNodeError:
            await session.create(path, encode_config(config), make_parents=True)
    finally:
        await session.close()


class BrokerHost:
    """Call `take`, `start`, then `stop`; `failed` is done when the broker cannot continue."""

    def __init__(
        self,
        folder: DataFolder,
        properties: Mapping[str, str],
        embedded_zookeeper_port: int | None,
        user: Callable[[], tuple[str, dict[str, str]]] | None = None,
        stop_with: int | None = None,
    ) -> None:
        """`user` returns a user and its configuration, which is stored in ZooKeeper before the start; `stop_with` is
        announced.
        """
        self._stop_with = stop_with
        self.folder = folder
        self._user = user
        self._world = real_world()
        self._running: RunningBroker | None = None
        self._embedded: EmbeddedZooKeeper | None = None
        if not ConfigView(properties).current.zookeeper_connect:
            self._embedded = EmbeddedZooKeeper(
                folder.zookeeper,
                host=LOOPBACK,
                port=embedded_zookeeper_port or 0,
                port_option="--embedded-zookeeper-port",
                on_failure=self._zookeeper_failed,
            )
        self._broker = Broker(
            self._world,
            properties,
            sessions=FolderSessions(folder, has_own_zookeeper=self._embedded is not None),
            own_zookeeper=self._embedded,
            on_leadership=self._leadership_changed,
        )

    @property
    def failed(self) -> asyncio.Future[None]:
        """Done with an exception when the broker cannot continue."""
        return self._broker.failed

    def take(self) -> None:
        """Take the ports, then the data folder.  Raises KctlError; the caller then calls `stop`.

        The ports first, since the most common reason for a failed start is another broker on them: its folder, and one
        that does not exist, stay as they are.
        """
        self._broker.bind()
        if self._embedded is not None:
            self._embedded.bind()
        self.folder.acquire()

    async def start(self) -> RunningBroker:
        """Start, after `take`; when it returns, the broker serves.

        Raises KctlError on failure; the caller then calls `stop`.
        """
        self._broker.open_logs()
        zookeeper = self._broker.configs.current.zookeeper_connect or await self._start_zookeeper()
        if self._user is not None:
            await store_user(zookeeper, self._broker.configs, *await in_thread(self._user))
        await self._broker.start(zookeeper)
        endpoint = self._broker.advertised[0]
        running = self._running = RunningBroker(
            pid=os.getpid(),
            host=endpoint.host,
            port=endpoint.port,
            broker_id=self._broker.broker_id,
            zookeeper=zookeeper,
            started_ms=self._world.clock.now_ms(),
            version=__version__,
            metrics_url=self._broker.metrics_url,
            log_dirs=self._broker.configs.current.log_directories,
            listeners={
                advertised.listener: address_text(advertised.host, advertised.port)
                for advertised in self._broker.advertised
            },
            stop_with=self._stop_with,
            problem=self._broker.leadership_problem,
        )
        self.folder.announce(running)
        return running

    async def stop(self) -> None:
        """Stop in the reverse order."""
        self._running = None
        await self._broker.stop()
        if self._embedded is not None:
            await self._embedded.stop()
        self.folder.release()

    async def _start_zookeeper(self) -> str:
        assert self._embedded is not None, "call take first"
        await self._embedded.start()
        return self._embedded.connect

    def _leadership_changed(self, problem: str) -> None:
        """Write the reason for `kctl broker status`."""
        if self._running is None:
            return
        try:
            self.folder.announce(replace(self._running, problem=problem))
        except OSError as error:
            log.warning("cannot write a file folder=%s error=%s", self.folder.path, error)

    def _zookeeper_failed(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
