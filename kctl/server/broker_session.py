"""A broker's ZooKeeper session: one after the other, because a session that expires is followed by a new one.

With an expired session its ephemeral nodes are gone: to the cluster the broker is dead until it has begun again.  That
is tried as long as it takes; it ends with the broker, or when another one has taken its id, because then nobody would
know of this one any more.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kctl.config.dynamic import ConfigView
from kctl.errors import KctlError, ZooKeeperError
from kctl.server.world import OpenSession
from kctl.zookeeper.operations import SessionState, WatchEvent, ZooKeeper

log = logging.getLogger(__name__)

_RECONNECT_PAUSE_S = 1.0


class BrokerSession:
    """`open`, then `renew_by`; `begin_shutdown`, `stop_renewing`, and `close` when nothing needs ZooKeeper any more."""

    def __init__(
        self,
        configs: ConfigView,
        *,
        open_session: OpenSession,
        on_watch: Callable[[WatchEvent], None],
        fail: Callable[[KctlError], None],
    ) -> None:
        self.zookeeper: ZooKeeper | None = None
        self._configs = configs
        self._open_session = open_session
        self._on_watch = on_watch
        self._fail = fail
        self._on_expired: Callable[[], None] | None = None
        self._begin_again: Callable[[ZooKeeper], Awaitable[None]] | None = None
        self._is_ending = False
        self._renewal: asyncio.Task[None] | None = None

    async def open(self, connect: str) -> ZooKeeper:
        """The first session.  Raises ZooKeeperError."""
        config = self._configs.current
        self.zookeeper = self._open_session(
            connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            on_watch=self._on_watch,
            on_state=self._on_state,
        )
        await self.zookeeper.start(config.zookeeper_connection_timeout)
        return self.zookeeper

    def renew_by(self, *, on_expired: Callable[[], None], begin_again: Callable[[ZooKeeper], Awaitable[None]]) -> None:
        """What to do when a session has expired, and when the next one is there; without these it stays expired."""
        self._on_expired = on_expired
        self._begin_again = begin_again

    def begin_shutdown(self) -> None:
        """A session that expires from now on is the last one."""
        self._is_ending = True

    async def stop_renewing(self) -> None:
        """Whatever was begun with a new session goes no further."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)

    async def close(self) -> None:
        """Ends the session, and with it the registration."""
        if self.zookeeper is not None:
            await self.zookeeper.close()

    def _on_state(self, state: SessionState) -> None:
        log.info("ZooKeeper session is %s", state.value)
        if state is not SessionState.EXPIRED or self._is_ending:
            return
        if self.zookeeper is None or self._on_expired is None or self._begin_again is None:
            return
        self._on_expired()
        if self._renewal is None or self._renewal.done():
            # A session that ends while one is being begun is that one's own business.
            renewal = self._renew(self.zookeeper, self._begin_again)
            self._renewal = asyncio.get_running_loop().create_task(renewal, name="new-session")

    async def _renew(self, zookeeper: ZooKeeper, begin_again: Callable[[ZooKeeper], Awaitable[None]]) -> None:
        while True:
            try:
                await zookeeper.reconnect(self._configs.current.zookeeper_connection_timeout)
                await begin_again(zookeeper)
                return
            except ZooKeeperError as error:
                log.warning("no new ZooKeeper session yet: %s", error)
                await asyncio.sleep(_RECONNECT_PAUSE_S)
            except KctlError as error:
                self._fail(error)
                return
