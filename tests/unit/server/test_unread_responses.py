"""Responses that clients do not read have a common bound."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from kctl.model import Endpoint
from kctl.server.network.acceptor import Acceptor
from kctl.server.network.connections.channel import DirectChannel, Reply
from kctl.server.network.connections.outbox import UnreadResponses
from kctl.server.network.listen_settings import ListenSettings
from kctl.server.requests.context import Peer

BOUND = 100
NAMES = st.sampled_from("abcdef")


@given(st.lists(st.tuples(st.sampled_from(["blocked", "progressed", "resumed"]), NAMES, st.integers(0, 150))))
def test_the_connection_that_has_not_read_for_the_longest_time_is_closed(events: list[tuple[str, str, int]]) -> None:
    closed: list[str] = []
    unread: UnreadResponses[str] = UnreadResponses(closed.append, bytes_max=BOUND)
    kept: dict[str, int] = {}
    for event, name, size_bytes in events:
        closed.clear()
        expected: list[str] = []
        if event == "blocked" and name not in kept:
            kept[name] = size_bytes
            while sum(kept.values()) > BOUND:
                expected.append(next(iter(kept)))
                del kept[expected[-1]]
            unread.blocked(name, size_bytes)
        elif event == "progressed":
            if name in kept:
                kept[name] = kept.pop(name)
            unread.progressed(name)
        elif event == "resumed":
            kept.pop(name, None)
            unread.resumed(name)
        assert closed == expected
        assert unread.total_bytes == sum(kept.values())


def test_clients_that_do_not_read_are_closed_and_one_that_reads_gets_its_response() -> None:
    response_bytes = 32 << 20

    def handle(_frame: memoryview, _peer: Peer) -> Reply:
        return [bytes(response_bytes)]

    async def main() -> None:
        acceptor = Acceptor(
            open_channel=partial(DirectChannel, handle, frame_bytes_max=1 << 20),
            settings=ListenSettings(connections_max_idle_ms=0),
        )
        acceptor._unread = UnreadResponses(acceptor._close_unread, bytes_max=3 * response_bytes)
        port = acceptor.bind(Endpoint("PLAINTEXT", "127.0.0.1", 0)).port
        acceptor.start()
        async with contextlib.AsyncExitStack() as stack:
            for number in range(8):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
                stack.callback(writer.close)
                writer.write(b"\0\0\0\1x")
                async with asyncio.timeout(60):
                    # The first bytes show that the response is in memory; the client then stops reading.
                    await reader.readexactly(1)
                assert acceptor._unread.total_bytes <= 3 * response_bytes
                assert acceptor.connection_count <= 4, number
            async with asyncio.timeout(60):
                assert len(await reader.readexactly(response_bytes - 1)) == response_bytes - 1
        acceptor.close()

    asyncio.run(main())
