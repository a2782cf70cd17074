"""Full garbage collections run when the event loop is idle; closed connections need none."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref

from kctl.model import Endpoint
from kctl.server.garbage_collection import CHECK_INTERVAL_S, INTERVAL_MAX_S, INTERVAL_MIN_S, FullCollections
from kctl.server.network.acceptor import Acceptor
from kctl.server.network.channel import DirectChannel, Reply
from kctl.server.network.listen_settings import ListenSettings
from kctl.server.requests.context import Peer


def times_of_collections(busy_shares: list[float]) -> list[float]:
    """The times in seconds at which collections were due, for a loop that was busy for these shares of the
    intervals.
    """
    collections = FullCollections(0.0, 0.0)
    busy_s = 0.0
    due = []
    for number, share in enumerate(busy_shares, 1):
        busy_s += share * CHECK_INTERVAL_S
        if collections.is_due(number * CHECK_INTERVAL_S, busy_s):
            due.append(number * CHECK_INTERVAL_S)
    return due


def test_an_idle_loop_collects_at_the_minimum_interval() -> None:
    assert times_of_collections([0.0] * 30) == [INTERVAL_MIN_S, 2 * INTERVAL_MIN_S]


def test_a_busy_loop_waits_for_an_idle_moment() -> None:
    assert times_of_collections([0.9] * 20 + [0.01] + [0.9] * 20) == [21 * CHECK_INTERVAL_S]


def test_a_loop_that_is_never_idle_collects_after_the_maximum_interval() -> None:
    assert times_of_collections([0.9] * 200) == [INTERVAL_MAX_S]


def test_a_closed_connection_is_freed_without_the_garbage_collector() -> None:
    """Each closed connection left a cycle of about twenty objects: collecting 50,000 objects of them took 76 ms."""
    opened: list[weakref.ref[DirectChannel]] = []

    class Channel(DirectChannel):
        __slots__ = ("__weakref__",)

    def handle(_frame: memoryview, _peer: Peer) -> Reply:
        return None

    def open_channel(peer: Peer) -> DirectChannel:
        channel = Channel(handle, peer, frame_bytes_max=1 << 20)
        opened.append(weakref.ref(channel))
        return channel

    async def main() -> None:
        acceptor = Acceptor(open_channel=open_channel, settings=ListenSettings(connections_max_idle_ms=0))
        port = acceptor.bind(Endpoint("PLAINTEXT", "127.0.0.1", 0)).port
        acceptor.start()
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"\0\0\0\1x")
        async with asyncio.timeout(60):
            while len(opened) < 3 or any(channel() is not None for channel in opened):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        acceptor.close()

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()
