"""A broker on this machine: its port, its data folder and, unless ZooKeeper is configured, an embedded one.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kctl import __version__
from kctl.config.addresses import address_text
from kctl.config.dynamic import ConfigView
from kctl.errors import BadVersionError, NodeExistsError, NoNodeError
from kctl.server.broker.broker import Broker
from kctl.server.loop.tasks import in_thread
from kctl.server.network.world import real_world
from kctl.server.process.data_folder import LOOPBACK, DataFolder, RunningBroker
from kctl.system.user_files import replace_private
from kctl.zookeeper import paths
from kctl.zookeeper.embedded.server import EmbeddedZooKeeper
from kctl.zookeeper.operations import SessionKey
from kctl.zookeeper.security import zookeeper_security
from kctl.zookeeper.session import ZooKeeperSession
from kctl.zookeeper.znodes import decode_config, encode_config

if TYPE_CHECKING:
    from kctl.server.process.test_control.control import BrokerControl

log = logging.getLogger(__name__)

_SESSION_BYTES_MAX = 4_096


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


async def store_user(connect: str, configs: ConfigView, user: str, config: Mapping[str, str]) -> None:
    """Merge the properties into the configuration of the user in ZooKeeper.  Raises ZooKeeperError."""
    security = await in_thread(partial(zookeeper_security, configs.static))
    session = ZooKeeperSession(connect, security=security)
    await session.start(configs.current.zookeeper_connection_timeout)
    path = paths.config_entity(f"users/{user}")
    try:
        while not await _has_merged(session, path, config):
            pass  # Another broker that starts has stored it in between.
    finally:
        await session.close()


async def _has_merged(session: ZooKeeperSession, path: str, config: Mapping[str, str]) -> bool:
    """Merge the properties into a configuration; False if another client has changed it meanwhile."""
    try:
        data, stat = await session.get(path)
        merged = {**decode_config(path, data), **config}
        await session.set(path, encode_config(merged), version=stat.version)
    except NoNodeError:
        try:
            await session.create(path, encode_config(config), make_parents=True)
        except NodeExistsError:
            return False
    except BadVersionError:
        return False
    return True


class BrokerHost:
    """Call `take`, `start`, then `stop`; `failed` is done when the broker cannot continue."""

    def __init__(
        self,
        folder: DataFolder,
        properties: Mapping[str, str],
        embedded_zookeeper_port: int | None,
        user: Callable[[], tuple[str, dict[str, str]]] | None = None,
        stop_with: int | None = None,
        control: BrokerControl | None = None,
    ) -> None:
        """`user` returns a user and its configuration, which is stored in ZooKeeper before the start; `stop_with` is
        announced; `control` is that of a test.
        """
        self._stop_with = stop_with
        self._control = control
        self.folder = folder
        self._user = user
        self._world = real_world() if control is None else control.world(real_world())
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
        if self._control is not None:
            await self._control.start(self._broker)
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
        if self._control is not None:
            await self._control.close()
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
