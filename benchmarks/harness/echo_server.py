"""A server that answers frames of Kafka's protocol without reading them: `echo_server.py epoll|asyncio FILE`.

It prints its port.  Each frame is written to the file, and answered with a response of zeros.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys

RESPONSE = b"\0\0\0\x34" + bytes(0x34)
"""As long as a response to Produce for one partition of a topic whose name has 4 letters."""
SIZE_BYTES = 4


def serve_epoll(file: int) -> None:
    """Serve with one epoll loop, which assumes that a frame comes whole."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    sockets: dict[int, socket.socket] = {}
    while True:
        for number, _ in poll.poll():
            if number == listener.fileno():
                accepted, _ = listener.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sockets[accepted.fileno()] = accepted
                poll.register(accepted, select.EPOLLIN)
                continue
            sock = sockets[number]
            data = sock.recv(1 << 16)
            if not data:
                poll.unregister(number)
                sockets.pop(number).close()
                continue
            os.write(file, data)
            sock.send(RESPONSE * _frames(data))


class EchoProtocol(asyncio.BufferedProtocol):
    """The same as a protocol of asyncio with a buffer of its own, as the broker's connections have."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._buffer = memoryview(bytearray(1 << 16))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._buffer[:nbytes]
        os.write(self._file, data)
        self._transport.write(RESPONSE * _frames(data))


async def serve_asyncio(file: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: EchoProtocol(file), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _frames(data: bytes | memoryview) -> int:
    """Return how many frames the bytes are; all have one length."""
    return len(data) // (SIZE_BYTES + int.from_bytes(data[:SIZE_BYTES], "big"))


if __name__ == "__main__":
    _, kind, path = sys.argv
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if kind == "epoll":
        serve_epoll(opened)
    else:
        asyncio.run(serve_asyncio(opened))
