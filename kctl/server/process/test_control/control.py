"""The socket over which a test controls its broker: lines of JSON, on a Unix socket in a private folder.

It exists only in a broker that was started with the environment variable KCTL_TEST_CONTROL and with --stop-with: such a
broker ends with the test that has started it.  No property and no option opens it.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
from pathlib import Path

from kctl.errors import KctlError
from kctl.limits import Subject, bound
from kctl.server.broker.broker import Broker
from kctl.server.network.world import World
from kctl.server.process.test_control.commands import Commands
from kctl.server.process.test_control.requests import ControlledRequests
from kctl.server.process.test_control.world import AdvancedClock, AdvancedEventLoop, ControlledWorld

CONTROL_LINE_BYTES_MAX = bound(
    Subject.TESTS,
    "command of a test to its broker",
    64 << 10,
    "bytes",
    on_excess="the connection of the test is closed",
)
CONTROL_CONNECTIONS_MAX = bound(
    Subject.TESTS,
    "connections of a test to the socket that controls its broker",
    64,
    "connections",
    on_excess="the connection is closed",
)

log = logging.getLogger(__name__)

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class BrokerControl:
    """Call `new_loop`, `world` and `start` in this order, and `close` at the end."""

    def __init__(self, path: str, *, stop_with: int | None) -> None:
        """Check the path of the socket.  Raises KctlError for one that others could use."""
        self._path = Path(path)
        self._clock = AdvancedClock()
        self._requests = ControlledRequests(self._clock.now_ms)
        self._controlled: ControlledWorld
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        if stop_with is None:
            raise KctlError("KCTL_TEST_CONTROL is for brokers of tests: start them with --stop-with")
        try:
            folder = self._path.parent.stat()
        except OSError as error:
            raise KctlError(f"KCTL_TEST_CONTROL={path}: {error.strerror}") from None
        if folder.st_mode & _OTHERS or folder.st_uid != os.geteuid():
            raise KctlError(f"KCTL_TEST_CONTROL={path}: its folder must be private to this user (mode 0700)")

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the broker."""
        return AdvancedEventLoop(self._clock)

    def world(self, world: World) -> World:
        """Return the environment of the broker."""
        self._controlled = ControlledWorld(self._clock, world, self._requests.around)
        return self._controlled.world

    async def start(self, broker: Broker) -> None:
        """Accept commands.  Raises KctlError."""
        self._requests.topic_names = broker.topic_names
        commands = Commands(self._requests, self._controlled, lambda: broker.transactions)

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._connections) >= CONTROL_CONNECTIONS_MAX:
                writer.close()
                return
            task = asyncio.get_running_loop().create_task(_serve(commands, reader, writer), name="test-control")
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        try:
            self._server = await asyncio.start_unix_server(accepted, self._path, limit=CONTROL_LINE_BYTES_MAX)
            self._path.chmod(stat.S_IRUSR | stat.S_IWUSR)
        except (OSError, ValueError) as error:  # ValueError for a path that is too long.
            raise KctlError(f"KCTL_TEST_CONTROL={self._path}: {error}") from None
        log.warning("a test controls this broker socket=%s", self._path)

    async def close(self) -> None:
        """Close the socket and remove it."""
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._path.unlink(missing_ok=True)


async def _serve(commands: Commands, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Perform the commands of one connection, one after the other."""
    try:
        while line := await reader.readline():
            writer.write(json.dumps(await _perform(commands, line)).encode() + b"\n")
            await writer.drain()
    except (ValueError, OSError):  # ValueError for a line that is too long.
        pass
    finally:
        writer.close()


async def _perform(commands: Commands, line: bytes) -> object:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return {"error": "not a line of JSON"}
    try:
        return await commands.perform(request)
    except KctlError as error:
        return {"error": str(error)}
