"""A broker's ZooKeeper session, replaced by a new one whenever it expires.

When a session expires, its ephemeral nodes are deleted: for the cluster the broker is dead until it has registered
again.  That is retried until the broker stops, or until another broker has registered its id, which is fatal.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from kctl.config.broker import BrokerConfig
from kctl.config.dynamic import ConfigView
from kctl.errors import KctlError, ZooKeeperError
from kctl.server.loop.tasks import in_thread
from kctl.server.network.world import OpenSession
from kctl.zookeeper import paths
from kctl.zookeeper.operations import ANY_VERSION, Check, SessionState, WatchEvent, ZooKeeper
from kctl.zookeeper.security import zookeeper_security

log = logging.getLogger(__name__)

_RECONNECT_PAUSE_S = 1.0
_WRITE_CHECK_S = 10.0
_WRITE_CHECK_AFTER_PROBLEM_S = 2.0
_WRITE_CHECK_TIMEOUT_S = 10.0
_CONSEQUENCES = {
    SessionState.SUSPENDED: "reconnecting; until then topics, leaders and in-sync replicas cannot change, and clients "
    "are served only while the session cannot have expired",
    SessionState.EXPIRED: "registering again in a new session; other brokers take over as leaders",
}


class BrokerSession:
    """Call `open`, then `renew_by`; to stop, `begin_shutdown`, `stop_renewing`, and `close` as the last step."""

    def __init__(
        self,
        configs: ConfigView,
        *,
        open_session: OpenSession,
        on_watch: Callable[[WatchEvent], None],
        fail: Callable[[KctlError], None],
    ) -> None:
        self.zookeeper: ZooKeeper | None = None
        self.state_counts: Counter[SessionState] = Counter()
        """How often the session came into each state."""
        self._configs = configs
        self._open_session = open_session
        self._on_watch = on_watch
        self._fail = fail
        self._on_expired: Callable[[], None] | None = None
        self._on_new_session: Callable[[ZooKeeper], Awaitable[None]] | None = None
        self._is_ending = False
        self._renewal: asyncio.Task[None] | None = None
        self._write_checks: asyncio.Task[None] | None = None
        self._write_problem = ""
        self._reconnected = asyncio.Event()

    async def open(self, connect: str) -> ZooKeeper:
        """Open the first session.  Raises ZooKeeperError and ConfigError."""
        config = self._configs.current
        security = await in_thread(partial(zookeeper_security, self._configs.static)) if _is_secured(config) else None
        self.zookeeper = self._open_session(
            connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            on_watch=self._on_watch,
            on_state=self._on_state,
            security=security,
        )
        await self.zookeeper.start(config.zookeeper_connection_timeout)
        return self.zookeeper

    def renew_by(
        self, *, on_expired: Callable[[], None], on_new_session: Callable[[ZooKeeper], Awaitable[None]]
    ) -> None:
        """Set the callbacks for an expired and for a new session; without them an expired session is not replaced."""
        self._on_expired = on_expired
        self._on_new_session = on_new_session
        self._write_checks = asyncio.get_running_loop().create_task(self._check_writes(), name="zookeeper-write-checks")

    def begin_shutdown(self) -> None:
        """Do not replace a session that expires after this."""
        self._is_ending = True

    async def stop_renewing(self) -> None:
        """Cancel the renewal of the session, and the checks."""
        tasks = [task for task in (self._renewal, self._write_checks) if task is not None]
        self._renewal = self._write_checks = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Close the session, which deletes the registration."""
        if self.zookeeper is not None:
            await self.zookeeper.close()

    @property
    def problem(self) -> str:
        """Why the broker is not registered now, may not be, or cannot change anything in ZooKeeper; empty if it can."""
        if self.zookeeper is None or self.zookeeper.state is SessionState.CLOSED:
            return "there is no session with ZooKeeper"
        if self.zookeeper.state is not SessionState.CONNECTED:
            return f"the session with ZooKeeper is {self.zookeeper.state.value}"
        if self._renewal is not None and not self._renewal.done():
            return "the broker is registering again in a new session with ZooKeeper"
        return self._write_problem

    async def _check_writes(self) -> None:
        """Notice that ZooKeeper serves reads but cannot write, because of a full disk for example.

        A multi that only checks a version changes nothing, but is a transaction, which ZooKeeper writes to its log.
        The embedded service closes its connections when a write has failed: that is looked at at once.
        """
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WRITE_CHECK_AFTER_PROBLEM_S if self._write_problem else _WRITE_CHECK_S):
                    await self._reconnected.wait()
            self._reconnected.clear()
            zookeeper = self.zookeeper
            if zookeeper is None or zookeeper.state is not SessionState.CONNECTED:
                continue
            problem = ""
            try:
                async with asyncio.timeout(_WRITE_CHECK_TIMEOUT_S):
                    await zookeeper.multi([Check(paths.BROKER_IDS, ANY_VERSION)])
            except ZooKeeperError as error:
                problem = str(error)
            except TimeoutError:
                problem = f"no response within {_WRITE_CHECK_TIMEOUT_S:g} s"
            self._note_write_problem(f"ZooKeeper accepts no changes: {problem}" if problem else "")

    def _note_write_problem(self, problem: str) -> None:
        if problem and not self._write_problem:
            message = "ZooKeeper accepts no changes; topics, leaders and in-sync replicas cannot change error=%s"
            log.error(message, problem)
        elif self._write_problem and not problem:
            log.info("ZooKeeper accepts changes again")
        self._write_problem = problem

    def _on_state(self, state: SessionState) -> None:
        self.state_counts[state] += 1
        if state is SessionState.CONNECTED:
            self._reconnected.set()
        if self._is_ending or state not in _CONSEQUENCES:
            log.info("ZooKeeper session changed state=%s", state.value)
        else:
            timeout_ms = self._configs.current.zookeeper_session_timeout_ms
            message = "ZooKeeper session changed state=%s session_timeout_ms=%d consequence=%s"
            log.warning(message, state.value, timeout_ms, _CONSEQUENCES[state])
        if state is not SessionState.EXPIRED or self._is_ending:
            return
        if self.zookeeper is None or self._on_expired is None or self._on_new_session is None:
            return
        self._on_expired()
        if self._renewal is None or self._renewal.done():
            # A session that expires during a renewal is handled by that renewal.
            renewal = self._renew(self.zookeeper, self._on_expired, self._on_new_session)
            self._renewal = asyncio.get_running_loop().create_task(renewal, name="new-session")

    async def _renew(
        self,
        zookeeper: ZooKeeper,
        on_expired: Callable[[], None],
        on_new_session: Callable[[ZooKeeper], Awaitable[None]],
    ) -> None:
        while True:
            try:
                await zookeeper.reconnect(self._configs.current.zookeeper_connection_timeout)
                await on_new_session(zookeeper)
                return
            except ZooKeeperError as error:
                message = "cannot open a new ZooKeeper session, trying again error=%s retry_ms=%d"
                log.warning(message, error, _RECONNECT_PAUSE_S * 1000)
                on_expired()  # The next attempt closes this session, in which the broker may have registered.
                await asyncio.sleep(_RECONNECT_PAUSE_S)
            except KctlError as error:
                self._fail(error)
                return


def _is_secured(config: BrokerConfig) -> bool:
    return config.zookeeper_ssl_client_enable or config.zookeeper_set_acl
