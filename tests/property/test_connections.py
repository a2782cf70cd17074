"""Connections over sockets, whose requests arrive in any pieces: each is handled once, in order, and answered.

Received bytes are overwritten when they must not be read any more, so that a request that is read too late, or is mixed
with one of another connection, has a wrong response.
"""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import ExitStack
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.limits import LONE_FRAME_BYTES_MAX
from kctl.server.network.connections.buffer_pool import BufferPool
from kctl.server.network.connections.channel import DirectChannel, Handle, PerformedReply, Reply
from kctl.server.network.connections.connection import Connection
from kctl.server.network.connections.outbox import UnreadResponses
from kctl.server.network.connections.turns import Turns
from kctl.server.requests.context import Peer
from tests.unit.server.test_inbox import framed

TIMEOUT_S = 60
FRAME_BYTES_MAX = 1 << 20
AT_ONCE, LATER, PERFORMED, UNANSWERED, LONG = range(5)
"""What the handler does with a request: the first byte of its frame."""
LONG_RESPONSE_BYTES = 3 << 20
"""More than the buffers of a socket take."""
SIZES = st.one_of(
    st.integers(1, 100), st.sampled_from([LONE_FRAME_BYTES_MAX + difference for difference in (-5, -4, -3, 0, 1)])
)


class Broker:
    """Connections that share buffers and turns."""

    def __init__(self, stack: ExitStack, count: int, handle: Handle, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        loop = asyncio.get_running_loop()
        self.buffers = BufferPool(is_poisoned=True)
        self.malformed: list[str] = []
        self.closed: list[Connection] = []
        turns = Turns(loop)
        self.clients: list[socket.socket] = []
        for _ in range(count):
            ours, theirs = (stack.enter_context(sock) for sock in socket.socketpair())
            ours.setblocking(False)
            theirs.setblocking(False)
            self.clients.append(theirs)
            connection = Connection(
                ours,
                Peer("/client", "PLAINTEXT"),
                loop=loop,
                turns=turns,
                buffers=self.buffers,
                unread=UnreadResponses(lambda _: None),
                open_channel=partial(DirectChannel, handle, frame_bytes_max=frame_bytes_max),
                on_close=self.closed.append,
                on_malformed=lambda _, text: self.malformed.append(text),
            )
            stack.callback(connection.close)


async def received(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += await asyncio.get_running_loop().sock_recv(client, size - len(data)) or pytest.fail("closed")
    return data


def complete(future: asyncio.Future[Reply], reply: Reply) -> None:
    if not future.done():
        future.set_result(reply)


def response_of(frame: bytes) -> bytes:
    if frame[0] == UNANSWERED:
        return b""
    return frame * (LONG_RESPONSE_BYTES // len(frame)) if frame[0] == LONG else frame


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    size = draw(SIZES)
    return bytes([draw(st.sampled_from([AT_ONCE] * 4 + [LATER, PERFORMED, UNANSWERED, LONG]))]) + draw(
        st.binary(min_size=1, max_size=1)
    ) * (size - 1)


ARRIVALS = st.lists(st.tuples(st.integers(0, 2), st.lists(frames(), min_size=1, max_size=3)), min_size=1, max_size=12)
"""What arrives: the number of a connection, and the requests that it sends one after the other."""


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(arrivals=ARRIVALS, seed=st.integers(0, 1 << 16))
def test_requests_are_answered_in_order_in_whichever_pieces_they_arrive(
    arrivals: list[tuple[int, list[bytes]]], seed: int
) -> None:
    asyncio.run(exchange(arrivals, random.Random(seed)))


async def exchange(arrivals: list[tuple[int, list[bytes]]], chance: random.Random) -> None:
    loop = asyncio.get_running_loop()

    def handle(frame: memoryview, _: Peer) -> Reply | asyncio.Future[Reply]:
        data = bytes(frame)
        reply: Reply = None if data[0] == UNANSWERED else [response_of(data)]
        if data[0] not in {LATER, PERFORMED}:
            return reply
        future = PerformedReply() if data[0] == PERFORMED else loop.create_future()
        if isinstance(future, PerformedReply):
            future.may_overlap = True
        loop.call_soon(loop.call_soon, complete, future, reply)
        return future

    with ExitStack() as stack:
        broker = Broker(stack, 3, handle)
        expected = [b""] * 3
        for number, requests in arrivals:
            expected[number] += b"".join(map(response_of, requests))
        reading = [
            loop.create_task(received(client, len(whole)))
            for client, whole in zip(broker.clients, expected, strict=True)
        ]
        async with asyncio.timeout(TIMEOUT_S):
            for number, requests in arrivals:
                data = b"".join(map(framed, requests))
                cuts = sorted(chance.randrange(len(data)) for _ in range(chance.choice([0, 0, 1, 2])))
                for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                    await loop.sock_sendall(broker.clients[number], data[start:end])
                    for _ in range(chance.randrange(6)):
                        await asyncio.sleep(0)
            assert await asyncio.gather(*reading) == expected
            # The last request may have no response, or one that arrives before the turn of its connection has ended.
            while broker.buffers.lent_bytes:  # noqa: ASYNC110 - the broker is in this loop
                await asyncio.sleep(0)
        assert not broker.closed


def test_a_request_that_arrives_alone_after_another_one_needs_no_buffer_of_its_own() -> None:
    lent: list[int] = []

    async def main() -> None:
        def handle(frame: memoryview, _: Peer) -> Reply:
            lent.append(broker.buffers.lent_bytes)
            return [bytes(frame)]

        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            broker = Broker(stack, 1, handle)
            (client,) = broker.clients
            async with asyncio.timeout(TIMEOUT_S):
                for requests in ([b"first"], [b"alone"], [b"alone"], [b"two", b"at once"], [b"again"], [b"alone"]):
                    await loop.sock_sendall(client, b"".join(map(framed, requests)))
                    assert await received(client, sum(map(len, requests))) == b"".join(requests)

    asyncio.run(main())
    assert [size > 0 for size in lent] == [True, False, False, True, True, True, False]


def test_a_request_that_arrives_alone_waits_until_the_response_before_has_been_sent() -> None:
    async def main() -> None:
        def handle(frame: memoryview, _: Peer) -> Reply:
            return [response_of(bytes(frame))]

        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            broker = Broker(stack, 1, handle)
            (client,) = broker.clients
            async with asyncio.timeout(TIMEOUT_S):
                for frame in (bytes([AT_ONCE]), bytes([LONG]), bytes([AT_ONCE, 1]), bytes([AT_ONCE, 2])):
                    await loop.sock_sendall(client, framed(frame))
                    for _ in range(10):
                        await asyncio.sleep(0)
                expected = bytes([AT_ONCE]) + bytes([LONG]) * LONG_RESPONSE_BYTES + bytes([AT_ONCE, 1, AT_ONCE, 2])
                assert await received(client, len(expected)) == expected

    asyncio.run(main())


@pytest.mark.parametrize("size", [-1, 5, FRAME_BYTES_MAX + 1])
def test_a_length_beyond_the_limit_closes_a_connection_that_has_sent_requests_alone(size: int) -> None:
    async def main() -> None:
        def handle(frame: memoryview, _: Peer) -> Reply:
            return [bytes(frame)]

        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            broker = Broker(stack, 1, handle, frame_bytes_max=4)
            (client,) = broker.clients
            async with asyncio.timeout(TIMEOUT_S):
                for _ in range(3):
                    await loop.sock_sendall(client, framed(b"fine"))
                    assert await received(client, 4) == b"fine"
                await loop.sock_sendall(client, size.to_bytes(4, "big", signed=True) + bytes(5))
                assert await loop.sock_recv(client, 1) == b""
            assert len(broker.malformed) == 1
            assert f"frame of {size} bytes" in broker.malformed[0]
            assert len(broker.closed) == 1

    asyncio.run(main())
