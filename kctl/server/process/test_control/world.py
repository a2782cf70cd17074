"""The environment of a broker whose test controls it: a clock that advances, a disk that fills, a network that fails.

Owner: event loop; files are used by threads too, which only read whether the disk is full.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import TypeVar

from kctl.client.connections.transport import Budget, Connection, ConnectionLost, Security, Transport
from kctl.client.connections.versions import BrokerVersions
from kctl.config.addresses import address_text
from kctl.server.loop.tasks import SystemClock
from kctl.server.network.acceptor import Acceptor
from kctl.server.network.connections.channel import Handle, OpenChannel
from kctl.server.network.listen_settings import ListenSettings
from kctl.server.network.world import Listening, World
from kctl.storage.files import Buffer, File, RealFile, RealFiles
from kctl.zookeeper.operations import SessionState, WatchEvent, ZooKeeper
from kctl.zookeeper.security import ZooKeeperSecurity
from kctl.zookeeper.session import ZooKeeperSession

T = TypeVar("T")


class AdvancedClock(SystemClock):
    """The clocks of this machine, set forward by a test.

    `elapsed_ms` is not set forward: ZooKeeper measures the same time, and the session would seem to have expired.
    """

    def __init__(self) -> None:
        self.advanced_ms = 0

    def now_ms(self) -> int:
        """See Clock.now_ms."""
        return super().now_ms() + self.advanced_ms

    def monotonic_ms(self) -> int:
        """See Clock.monotonic_ms."""
        return super().monotonic_ms() + self.advanced_ms


class AdvancedEventLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop by the time of an AdvancedClock: setting it forward makes timers due."""

    def __init__(self, clock: AdvancedClock) -> None:
        super().__init__()
        self._clock = clock

    def time(self) -> float:
        """Return the time of timers, in seconds."""
        return super().time() + self._clock.advanced_ms / 1000


class FillableFiles(RealFiles):
    """The files of a disk that a test fills: what would need space fails with ENOSPC, as on a disk that is full."""

    def __init__(self) -> None:
        self.is_full = False

    def open(self, path: str, *, create: bool = False) -> File:
        """See Files.open."""
        if create and self.is_full and not os.path.exists(path):
            self.check_space(path)
        file = super().open(path, create=create)
        assert isinstance(file, RealFile)
        return _FillableFile(file, self)

    def write_atomically(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """See Files.write_atomically."""
        self.check_space(path)
        super().write_atomically(path, data, sync=sync)

    def make_directory(self, path: str) -> None:
        """See Files.make_directory."""
        if not os.path.isdir(path):
            self.check_space(path)
        super().make_directory(path)

    def check_space(self, path: str) -> None:
        """Raise OSError if the disk is full."""
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


class _FillableFile(RealFile):
    """A file on a disk that a test fills."""

    __slots__ = ("_files",)

    def __init__(self, file: RealFile, files: FillableFiles) -> None:
        super().__init__(file.path, os.dup(file.fileno()))
        file.close()
        self._files = files

    def write_at(self, position: int, data: Buffer) -> None:
        """See File.write_at."""
        if self._files.is_full and position + len(data) > self.size():
            self._files.check_space(self.path)
        super().write_at(position, data)


class PartitionedTransport:
    """A transport on which some addresses do not respond, as if the network lost all packets to them.

    Open connections continue when the addresses respond again, as TCP repeats what was lost.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._reachable: dict[str, asyncio.Event] = {}
        """The unreachable addresses, with what is set when they are reachable again."""

    def cut(self, addresses: Sequence[str]) -> None:
        """Lose all packets to these addresses, `host:port`."""
        for address in addresses:
            self._reachable.setdefault(address, asyncio.Event())

    def heal(self) -> None:
        """Lose no packets any more."""
        for reachable in self._reachable.values():
            reachable.set()
        self._reachable.clear()

    async def reach(self, address: str) -> None:
        """Return when the address is reachable."""
        while (reachable := self._reachable.get(address)) is not None:
            await reachable.wait()

    async def connect(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        connect_timeout_ms: int,
        timeout_ms: int,
        budget: Budget | None = None,
        security: Security | None = None,
        receive_buffer_bytes: int = -1,
        reached_at: str | None = None,
    ) -> Connection:
        """See Transport.connect."""
        address = address_text(host, port)
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await self.reach(address)
        except TimeoutError:
            raise ConnectionLost(f"{address}: no connection within {connect_timeout_ms} ms") from None
        connection = await self._transport.connect(
            host,
            port,
            client_id=client_id,
            connect_timeout_ms=connect_timeout_ms,
            timeout_ms=timeout_ms,
            budget=budget,
            security=security,
            receive_buffer_bytes=receive_buffer_bytes,
            reached_at=reached_at,
        )
        return _PartitionedConnection(connection, self, address, timeout_ms)

    async def gather(self, work: Sequence[Awaitable[T]]) -> list[T]:
        """See Transport.gather."""
        return await self._transport.gather(work)

    async def sleep(self, duration_ms: int) -> None:
        """See Transport.sleep."""
        await self._transport.sleep(duration_ms)

    def monotonic_ms(self) -> int:
        """See Transport.monotonic_ms."""
        return self._transport.monotonic_ms()


class _PartitionedConnection:
    """A connection over a PartitionedTransport."""

    def __init__(self, connection: Connection, transport: PartitionedTransport, address: str, timeout_ms: int) -> None:
        self._connection = connection
        self._transport = transport
        self._address = address
        self._timeout_ms = timeout_ms

    @property
    def address(self) -> str:
        return self._connection.address

    @property
    def versions(self) -> BrokerVersions:
        return self._connection.versions

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    async def send(
        self, request: object, response_class: type[T], *, version: int | None = None, timeout_ms: int | None = None
    ) -> T:
        await self._reach(timeout_ms or self._timeout_ms)
        response = await self._connection.send(request, response_class, version=version, timeout_ms=timeout_ms)
        # A response that was on its way is lost too.
        await self._reach(timeout_ms or self._timeout_ms)
        return response

    async def post(self, request: object, *, version: int | None = None) -> None:
        await self._reach(self._timeout_ms)
        await self._connection.post(request, version=version)

    async def close(self) -> None:
        await self._connection.close()

    async def _reach(self, timeout_ms: int) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._transport.reach(self._address)
        except TimeoutError:
            await self._connection.close()
            raise ConnectionLost(f"{self._address}: no response within {timeout_ms} ms") from None


class ControlledWorld:
    """The parts of the environment that commands change, and what they need of the broker."""

    def __init__(self, clock: AdvancedClock, world: World, around: Callable[[Handle], Handle]) -> None:
        self.clock = clock
        self.files = FillableFiles()
        self.transport = PartitionedTransport(world.transport)
        self.acceptor: Acceptor | None = None
        self.session: ZooKeeperSession | None = None
        self.has_unsigned_tokens = False
        """Whether tokens need no signature."""
        self.world = replace(
            world,
            clock=clock,
            files=self.files,
            transport=self.transport,
            listen=self._listen,
            open_session=self._open_session,
            around=around,
            accepts_unsigned_tokens=self._accepts_unsigned_tokens,
        )

    def beyond_loopback(self) -> list[str]:
        """Return the names of the listeners that clients of other machines can reach."""
        bound = [] if self.acceptor is None else self.acceptor.bound_addresses()
        return [listener for listener, host in bound if not ip_address(host.partition("%")[0]).is_loopback]

    def _accepts_unsigned_tokens(self, listener: str) -> bool:
        return self.has_unsigned_tokens and listener not in self.beyond_loopback()

    def _listen(self, *, open_channel: OpenChannel, settings: ListenSettings) -> Listening:
        self.acceptor = Acceptor(open_channel=open_channel, settings=settings)
        return self.acceptor

    def _open_session(
        self,
        connect: str,
        *,
        session_timeout_ms: int,
        on_watch: Callable[[WatchEvent], None],
        on_state: Callable[[SessionState], None],
        security: ZooKeeperSecurity | None,
    ) -> ZooKeeper:
        self.session = ZooKeeperSession(
            connect, session_timeout_ms=session_timeout_ms, on_watch=on_watch, on_state=on_state, security=security
        )
        return self.session
