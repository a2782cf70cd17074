"""A ZooKeeper session on the event loop, with a real ensemble.

Watch events, responses and state changes reach the loop in the order in which ZooKeeper sent them.  A task that awaits
a response resumes one iteration of the loop later; code that needs a strict order of events and responses must put both
into one queue.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from kctl.config.addresses import parse_addresses, without_user
from kctl.errors import ConfigError, NoNodeError, SessionLostError, UsageError, ZooKeeperError
from kctl.zookeeper.kazoo_link import KazooLink
from kctl.zookeeper.operations import (
    ANY_VERSION,
    Create,
    Delete,
    Operation,
    OperationResult,
    SessionKey,
    SessionState,
    SetData,
    WatchEvent,
    ZnodeStat,
    delete_tree,
    make_path,
)
from kctl.zookeeper.paths import parent
from kctl.zookeeper.security import ZooKeeperSecurity

DEFAULT_PORT = 2181
LATENCIES_MAX = 1028

log = logging.getLogger(__name__)


class ZooKeeperSession:
    """Implements `kctl.zookeeper.operations.ZooKeeper`.

    `on_watch` and `on_state` are called on the loop, in the order of their events; they must not raise.  `on_state` is
    not called for `close`.  After EXPIRED every call raises SessionLostError until `reconnect` has started a new
    session, without watches and ephemeral znodes.  `create_chroot` creates the znodes of the chroot if they are
    missing, as a broker does.
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int = 18_000,
        on_watch: Callable[[WatchEvent], None] = lambda _: None,
        on_state: Callable[[SessionState], None] = lambda _: None,
        create_chroot: bool = True,
        security: ZooKeeperSecurity | None = None,
    ) -> None:
        self._hosts, self._chroot = split_connect_string(connect)
        self._session_timeout_ms = session_timeout_ms
        self._on_watch = on_watch
        self._on_state = on_state
        self._create_chroot = create_chroot
        self._security = security
        self.request_count = 0
        self.latest_request_ms: deque[float] = deque(maxlen=LATENCIES_MAX)
        """How long the latest requests took, for metrics."""
        self._link: KazooLink | None = None
        self._state = SessionState.CLOSED

    @property
    def session_id(self) -> int:
        """See ZooKeeper.session_id."""
        return self._link.session_id if self._link else 0

    @property
    def session_timeout_ms(self) -> int:
        """See ZooKeeper.session_timeout_ms."""
        return self._link.session_timeout_ms if self._link else self._session_timeout_ms

    @property
    def session_key(self) -> SessionKey:
        """See ZooKeeper.session_key."""
        return self._open_link("").session_key

    @property
    def state(self) -> SessionState:
        """See ZooKeeper.state."""
        return self._state

    async def start(self, timeout_ms: int) -> None:
        """See ZooKeeper.start."""
        assert self._link is None, "a session starts once; see reconnect"
        self._link = KazooLink(
            self._hosts,
            self._chroot,
            self._session_timeout_ms,
            self._watch_fired,
            self._link_changed,
            self._security,
            on_latency=self._note_latency,
        )
        self._link.start()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._link.connected
                if self._create_chroot:
                    await self._link.make_chroot()
        except TimeoutError:
            is_refused = self._link.is_secured and not self._link.session_id
            await self.close()
            if is_refused:
                raise ZooKeeperError(
                    f"ZooKeeper at {self._hosts} began no session on TLS connections (waited {timeout_ms} ms): check "
                    "that it trusts the certificate in zookeeper.ssl.keystore.location"
                ) from None
            raise ZooKeeperError(
                f"ZooKeeper does not respond at {self._hosts} (waited {timeout_ms} ms): "
                "start it, or correct the address (zookeeper.connect)"
            ) from None
        except BaseException:
            await self.close()
            raise

    def _note_latency(self, latency_ms: float) -> None:
        self.request_count += 1
        self.latest_request_ms.append(latency_ms)

    async def reconnect(self, timeout_ms: int) -> None:
        """See ZooKeeper.reconnect."""
        await self.close()
        await self.start(timeout_ms)

    async def close(self) -> None:
        """See ZooKeeper.close."""
        link, self._link = self._link, None
        self._state = SessionState.CLOSED
        if link is not None:
            await link.close()

    async def close_other(self, key: SessionKey, timeout_ms: int) -> None:
        """See ZooKeeper.close_other."""
        has_expired = asyncio.get_running_loop().create_future()

        def changed(_: KazooLink, state: SessionState) -> None:
            if state is SessionState.EXPIRED and not has_expired.done():
                has_expired.set_result(None)

        link = KazooLink(
            self._hosts,
            self._chroot,
            self._session_timeout_ms,
            lambda _link, _event: None,
            changed,
            self._security,
            continues=key,
        )
        link.start()
        try:
            done, _ = await asyncio.wait(
                [link.connected, has_expired], timeout=timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED
            )
            for future in done:
                future.result()
        finally:
            await link.close()
        if not done:
            raise ZooKeeperError(f"ZooKeeper does not respond at {self._hosts} (waited {timeout_ms} ms)")

    async def get(self, path: str, *, watch: bool = False) -> tuple[bytes, ZnodeStat]:
        """See ZooKeeper.get."""
        return await self._open_link(path).get(path, watch=watch)

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """See ZooKeeper.children."""
        return await self._open_link(path).children(path, watch=watch)

    async def exists(self, path: str, *, watch: bool = False) -> ZnodeStat | None:
        """See ZooKeeper.exists."""
        return await self._open_link(path).exists(path, watch=watch)

    async def sync(self, path: str) -> None:
        """See ZooKeeper.sync."""
        await self._open_link(path).sync(path)

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        """See ZooKeeper.create."""
        operation = Create(path, data, ephemeral, sequence)
        try:
            created = await self._open_link(path).create(operation)
        except NoNodeError:
            if not make_parents:
                raise
            await make_path(self, parent(path))
            created = await self._open_link(path).create(operation)
        return created

    async def set(self, path: str, data: bytes | None, *, version: int = ANY_VERSION) -> ZnodeStat:
        """See ZooKeeper.set."""
        return await self._open_link(path).set(SetData(path, data, version))

    async def delete(self, path: str, *, version: int = ANY_VERSION, recursive: bool = False) -> None:
        """See ZooKeeper.delete."""
        if recursive:
            await delete_tree(self, path)
        else:
            await self._open_link(path).delete(Delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """See ZooKeeper.multi."""
        return await self._open_link("").multi(operations)

    def _open_link(self, path: str) -> KazooLink:
        if self._link is None:
            raise SessionLostError("the ZooKeeper session is closed", path)
        return self._link

    def _watch_fired(self, link: KazooLink, event: WatchEvent) -> None:
        if link is self._link:
            self._on_watch(event)

    def _link_changed(self, link: KazooLink, state: SessionState) -> None:
        if link is self._link and state is not self._state:
            self._state = state
            log.info("ZooKeeper session state=%s session_id=0x%x hosts=%s", state.value, link.session_id, self._hosts)
            self._on_state(state)


def split_connect_string(connect: str) -> tuple[str, str]:
    """Split `host:port[,host:port...][/chroot]` into (hosts, chroot); without a chroot the latter is "".

    Raises ConfigError for invalid hosts, which kazoo would try to resolve or connect to endlessly.
    """
    hosts, slash, chroot = connect.partition("/")
    try:
        parse_addresses(hosts, default_port=DEFAULT_PORT)
    except UsageError as error:
        raise ConfigError("zookeeper.connect", without_user(connect), str(error)) from None
    # kazoo raises ValueError for the empty parts that parse_addresses ignores.
    named = ",".join(filter(None, (part.strip() for part in hosts.split(","))))
    return named, (slash + chroot).rstrip("/")
