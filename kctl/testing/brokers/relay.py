"""A TCP relay in a thread of the test, through which a broker reaches its ZooKeeper until the test cuts it.

While it is cut, nothing is forwarded and nothing is lost, as TCP repeats it: connections continue afterwards, unless
one side has ended them meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

_PIECE_BYTES = 1 << 16


class Relay:
    """Forwards connections to one port of the loopback address; call `start` and `close`."""

    def __init__(self) -> None:
        self.port = 0
        """The port to connect to; it stays the same until `close`."""
        self.target_port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="kctl-relay", daemon=True)
        self._is_open: asyncio.Event
        self._has_started = threading.Event()
        self._pipes: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """HOST:PORT to connect to."""
        return f"127.0.0.1:{self.port}"

    def start(self, target_port: int) -> None:
        """Forward connections to this port, from now on."""
        self.target_port = target_port
        if not self._thread.is_alive():
            self._thread.start()
            self._has_started.wait()

    def cut(self) -> None:
        """Forward nothing."""
        self._loop.call_soon_threadsafe(self._is_open.clear)

    def heal(self) -> None:
        """Forward again."""
        self._loop.call_soon_threadsafe(self._is_open.set)

    def close(self) -> None:
        """End all connections, and the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(self._listen())
        self._has_started.set()
        self._loop.run_forever()
        server.close()
        for pipe in self._pipes:
            pipe.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._pipes, return_exceptions=True))

    async def _listen(self) -> asyncio.Server:
        self._is_open = asyncio.Event()
        self._is_open.set()
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._forward(reader, writer))
        self._pipes.add(task)
        task.add_done_callback(self._pipes.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._is_open.wait()
            with suppress(OSError):
                target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
                try:
                    async with asyncio.TaskGroup() as both:
                        both.create_task(self._copy(reader, target_writer))
                        both.create_task(self._copy(target_reader, writer))
                finally:
                    target_writer.close()
        finally:
            writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(_PIECE_BYTES):
                await self._is_open.wait()
                writer.write(piece)
                await writer.drain()
        await self._is_open.wait()
        writer.close()
