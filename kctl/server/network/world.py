"""The environment of a broker as one bundle of ports.

`process` creates the real one; simulations use virtual time, a network in memory, and a disk that can fail.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.transport import Transport
from kctl.model import Endpoint
from kctl.server.loop.tasks import SystemClock, started_pool
from kctl.server.network.acceptor import Acceptor
from kctl.server.network.connections.channel import Handle, OpenChannel
from kctl.server.network.listen_settings import ListeningState, ListenSettings
from kctl.storage.files import Files, RealFiles
from kctl.system.environment import MachineClock
from kctl.zookeeper.operations import SessionState, WatchEvent, ZooKeeper
from kctl.zookeeper.security import ZooKeeperSecurity
from kctl.zookeeper.session import ZooKeeperSession


class Listening(Protocol):
    """The listeners of a broker and their connections; see network.acceptor."""

    def measurements(self) -> ListeningState:
        """Return the state of the open connections."""
        ...

    def bind(self, endpoint: Endpoint) -> Endpoint:
        """Bind a listener; return its endpoint with the actual port.  Raises ListenError."""
        ...

    def unbind(self, listener: str) -> None:
        """Close a listener and its connections."""
        ...

    def start(self) -> None:
        """Start accepting connections, also on listeners that were bound after an earlier call."""
        ...

    def stop_accepting(self) -> None:
        """Stop accepting connections."""
        ...

    def close(self) -> None:
        """Close listeners and connections."""
        ...


class OpenSession(Protocol):
    """Creates a ZooKeeper session that is not started yet."""

    def __call__(
        self,
        connect: str,
        *,
        session_timeout_ms: int,
        on_watch: Callable[[WatchEvent], None],
        on_state: Callable[[SessionState], None],
        security: ZooKeeperSecurity | None,
    ) -> ZooKeeper: ...


class Listen(Protocol):
    """Creates listeners; each connection that they accept gets a channel."""

    def __call__(self, *, open_channel: OpenChannel, settings: ListenSettings) -> Listening: ...


def _unchanged(handle: Handle) -> Handle:
    return handle


def _never(_listener: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class World:
    """The environment of one broker."""

    clock: MachineClock
    random: random.Random
    files: Files
    transport: Transport
    listen: Listen
    open_session: OpenSession
    thread_pool: Callable[[int, str], ThreadPoolExecutor] = ThreadPoolExecutor
    """Creates a pool of so many threads with this prefix of their names."""
    around: Callable[[Handle], Handle] = _unchanged
    """Returns what connections use in place of the dispatcher's `handle`: that itself, except in brokers of tests."""
    accepts_unsigned_tokens: Callable[[str], bool] = _never
    """Returns whether OAUTHBEARER accepts tokens without a signature on this listener: only in brokers of tests."""


def real_world() -> World:
    """Return the environment of this machine."""
    return World(
        clock=SystemClock(),
        random=random.SystemRandom(),
        files=RealFiles(),
        transport=AsyncioTransport(),
        listen=Acceptor,
        open_session=ZooKeeperSession,
        thread_pool=started_pool,
    )
