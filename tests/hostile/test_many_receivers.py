"""Connections to which much has been sent receive it in turns, not all in one iteration of the event loop."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import ExitStack
from functools import partial

import pytest

from kctl.server.loop.lag import MeasuredEventLoop
from kctl.server.network.connections import connection as connection_module
from kctl.server.network.connections import turns as turns_module
from kctl.server.network.connections.buffer_pool import BufferPool
from kctl.server.network.connections.channel import DirectChannel, Reply
from kctl.server.network.connections.connection import Connection
from kctl.server.network.connections.outbox import UnreadResponses
from kctl.server.network.connections.turns import Turns
from kctl.server.requests.context import Peer

CONNECTIONS = 20
QUEUES = 2
REQUEST = struct.pack(">i", 50_000) + bytes(50_000)


@pytest.mark.parametrize("is_urgent", [False, True], ids=["data plane", "control plane"])
def test_an_iteration_receives_from_few_of_many_connections(monkeypatch: pytest.MonkeyPatch, is_urgent: bool) -> None:
    # Nothing is received without a turn, and each queue has one turn in an iteration.
    monkeypatch.setattr(connection_module, "RECEIVED_UNTIMED_MAX", 0)
    monkeypatch.setattr(turns_module, "_SLICE_S", -1.0)
    monkeypatch.setattr(turns_module, "_BUSY_SLICE_S", -1.0)
    with asyncio.Runner(loop_factory=MeasuredEventLoop) as runner:
        runner.run(receive_from_all(is_urgent=is_urgent))


async def receive_from_all(*, is_urgent: bool) -> None:
    handled: list[int] = []

    def handle(received: memoryview, _: Peer) -> Reply:
        handled.append(len(received))
        return [struct.pack(">i", 0)]

    loop = asyncio.get_running_loop()
    turns, buffers = Turns(loop), BufferPool()
    with ExitStack() as stack:
        connections: list[Connection] = []
        clients: list[socket.socket] = []
        for _ in range(CONNECTIONS):
            ours, theirs = (stack.enter_context(sock) for sock in socket.socketpair())
            ours.setblocking(False)
            theirs.sendall(REQUEST)
            clients.append(theirs)
            connections.append(
                Connection(
                    ours,
                    Peer("/client", "PLAINTEXT"),
                    loop=loop,
                    turns=turns,
                    buffers=buffers,
                    unread=UnreadResponses(lambda _: None),
                    open_channel=partial(DirectChannel, handle, frame_bytes_max=1 << 20),
                    on_close=lambda _: None,
                    on_malformed=lambda _, text: pytest.fail(text),
                    is_urgent=is_urgent,
                )
            )
        before = 0
        async with asyncio.timeout(60):
            while len(handled) < CONNECTIONS:
                await asyncio.sleep(0)
                active = sum(connection.was_active for connection in connections)
                assert active - before <= 1 + QUEUES
                before = active
        assert handled == [len(REQUEST) - 4] * CONNECTIONS
        assert all(theirs.recv(100) == struct.pack(">i", 0) for theirs in clients)
        for connection in connections:
            connection.close()
