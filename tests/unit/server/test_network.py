"""Framing, response order, file slices and misbehaving peers over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import MalformedRequest, UnansweredRequestFailed
from kctl.model import Endpoint
from kctl.server.network.acceptor import Acceptor, ListenError
from kctl.server.network.connection_limits import ConnectionLimits, LimitSettings
from kctl.server.network.connections.buffer_pool import MAPPED_BYTES_MIN
from kctl.server.network.connections.channel import DirectChannel, Handle, Reply
from kctl.server.network.connections.outbox import SEND_BYTES_MAX, PlainOutbox
from kctl.server.network.listen_settings import ListenSettings
from kctl.server.requests.context import Peer
from tests.unit.log_lines import written_lines

LOOPBACK = Endpoint("PLAINTEXT", "127.0.0.1", 0)
FRAME_MAX = 8 << 20


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Slice:
    """A range of a file, as storage returns it."""

    def __init__(self, fd: int, position: int, size: int) -> None:
        self._fd, self.position, self.size = fd, position, size

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        return self._fd


async def listening(handle: Handle, *, buffer_bytes: int = -1) -> tuple[Acceptor, int]:
    acceptor = Acceptor(
        open_channel=partial(DirectChannel, handle, frame_bytes_max=FRAME_MAX),
        settings=ListenSettings(
            connections_max_idle_ms=600_000, send_buffer_bytes=buffer_bytes, receive_buffer_bytes=buffer_bytes
        ),
    )
    port = acceptor.bind(LOOPBACK).port
    acceptor.start()
    return acceptor, port


class CountedSocket(socket.socket):
    """Counts the calls that send bytes."""

    sends = 0

    def sendmsg(self, *args: Any) -> int:
        self.sends += 1
        return super().sendmsg(*args)

    def send(self, *args: Any) -> int:
        self.sends += 1
        return super().send(*args)


@pytest.mark.parametrize("size", [1, 5_000])
def test_a_short_slice_is_sent_with_the_bytes_around_it_by_one_call(size: int, tmp_path: Path) -> None:
    path = tmp_path / "slice"
    path.write_bytes(bytes(100) + b"x" * size)
    ours, theirs = socket.socketpair()
    with path.open("rb") as file, CountedSocket(fileno=ours.detach()) as sock, theirs:
        outbox = PlainOutbox(sock)
        outbox.put([b"before", Slice(file.fileno(), 100, size), b"after"])
        assert outbox.flush()
        assert theirs.recv(10_000) == b"before" + b"x" * size + b"after"
        assert sock.sends == 1


def test_a_short_slice_beyond_the_end_of_its_file_ends_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "slice"
    path.write_bytes(bytes(100))
    ours, theirs = socket.socketpair()
    with path.open("rb") as file, ours, theirs:
        outbox = PlainOutbox(ours)
        outbox.put([Slice(file.fileno(), 100, 10)])
        with pytest.raises(ConnectionAbortedError):
            outbox.flush()


@given(
    st.lists(
        st.one_of(st.binary(max_size=200_000), st.tuples(st.integers(0, 900_000), st.integers(0, 100_000))), max_size=12
    )
)
def test_all_queued_bytes_are_sent_in_order_through_a_small_socket_buffer(
    chunks: list[bytes | tuple[int, int]],
) -> None:
    content = bytes(range(256)) * 4000
    fd = os.memfd_create("content")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        os.write(fd, content)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        ours.setblocking(False)
        outbox = PlainOutbox(ours)
        expected = b"".join(c if isinstance(c, bytes) else content[c[0] : c[0] + c[1]] for c in chunks)
        outbox.put(c if isinstance(c, bytes) else Slice(fd, *c) for c in chunks)
        received = b""
        theirs.setblocking(False)
        while not outbox.flush() or len(received) < len(expected):
            try:
                received += theirs.recv(1 << 20)
            except BlockingIOError:
                continue
        assert received == expected
    os.close(fd)


class RecordedSocket(socket.socket):
    """Records how many bytes each call was given."""

    offered: list[int]

    def sendmsg(self, buffers: Any, *args: Any) -> int:
        self.offered.append(sum(map(len, buffers)))
        return super().sendmsg(buffers, *args)

    def send(self, data: Any, flags: int = 0) -> int:
        self.offered.append(len(data))
        return super().send(data, flags)


@pytest.mark.parametrize("sizes", [[7], [3, 2], [1, 2, 1], [SEND_BYTES_MAX * 5 // 2], [9, SEND_BYTES_MAX * 2, 9]])
def test_bytes_from_memory_are_sent_some_at_a_time(sizes: list[int]) -> None:
    ours, theirs = socket.socketpair()
    with RecordedSocket(fileno=ours.detach()) as sock, theirs:
        sock.offered = []
        sock.setblocking(False)
        theirs.setblocking(False)
        outbox = PlainOutbox(sock)
        chunks = [os.urandom(size) for size in sizes]
        outbox.put(chunks)
        received = bytearray()
        while not outbox.flush() or len(received) < sum(sizes):
            with contextlib.suppress(BlockingIOError):
                received += theirs.recv(1 << 20)
        assert received == b"".join(chunks)
        assert max(sock.offered) <= SEND_BYTES_MAX


def test_responses_to_pipelined_requests_are_in_order_although_one_waits() -> None:
    async def main() -> bytes:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Reply] = loop.create_future()
        handled: list[bytes] = []

        def handle(frame: memoryview, _: Peer) -> Reply | asyncio.Future[Reply]:
            handled.append(bytes(frame))
            return waiting if bytes(frame) == b"wait" else [bytes(frame) + b";"]

        acceptor, port = await listening(handle)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"one") + framed(b"wait") + framed(b"three"))
        assert await reader.readexactly(4) == b"one;"
        assert handled == [b"one", b"wait"]
        waiting.set_result([b"two;"])
        rest = await reader.readexactly(10)
        writer.close()
        acceptor.close()
        return rest

    assert asyncio.run(main()) == b"two;three;"


@pytest.mark.parametrize("is_delayed", [False, True])
def test_a_failed_request_without_a_response_closes_its_connection_and_is_not_malformed(
    caplog: pytest.LogCaptureFixture, *, is_delayed: bool
) -> None:
    async def main() -> None:
        def handle(frame: memoryview, _: Peer) -> Reply | asyncio.Future[Reply]:
            if bytes(frame) != b"fails":
                return [b"ok"]
            error = UnansweredRequestFailed("Produce with acks=0: t-0: INVALID_RECORD")
            if not is_delayed:
                raise error
            reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            reply.set_exception(error)
            return reply

        acceptor, port = await listening(handle)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"fine") + framed(b"fails") + framed(b"fine"))
        assert await reader.read() == b"ok"
        assert (acceptor.malformed_count, acceptor.connection_count) == (0, 0)
        writer.close()
        acceptor.close()

    with caplog.at_level(logging.INFO):
        asyncio.run(main())
    (output,) = (record.getMessage() for record in caplog.records if record.name.startswith("kctl."))
    assert output.startswith("closing connection after a failed request without a response listener=")
    assert output.endswith("error=Produce with acks=0: t-0: INVALID_RECORD")


def test_malformed_frames_write_a_bounded_number_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Anybody can send them, also before authentication."""
    clients = 60

    async def main() -> None:
        acceptor, port = await listening(lambda frame, _: [bytes(frame)])
        for _ in range(clients):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(struct.pack(">i", FRAME_MAX + 1))
            assert await reader.read() == b""
            writer.close()
        assert acceptor.malformed_count == clients
        acceptor.close()

    with caplog.at_level(logging.INFO):
        asyncio.run(main())
    first, count = written_lines(record for record in caplog.records if "malformed request" in record.getMessage())
    assert f"reason=frame of {FRAME_MAX + 1} bytes" in first
    assert count.endswith(f" repeated={clients - 1}")


def test_a_malformed_frame_closes_only_its_connection() -> None:
    async def main() -> None:
        def handle(frame: memoryview, _: Peer) -> Reply:
            if bytes(frame) == b"bad":
                raise MalformedRequest("as asked")
            return [b"ok"]

        acceptor, port = await listening(handle)
        bad_reader, bad_writer = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        bad_writer.write(framed(b"fine") + framed(b"bad") + framed(b"fine"))
        assert await bad_reader.read() == b"ok"
        writer.write(framed(b"fine"))
        assert await reader.readexactly(2) == b"ok"
        assert acceptor.malformed_count == 1
        assert acceptor.connection_count == 1
        bad_writer.close()
        writer.close()
        acceptor.close()

    asyncio.run(main())


def test_a_handler_exception_closes_only_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        def handle(frame: memoryview, _: Peer) -> Reply:
            if bytes(frame) == b"fail":
                raise RuntimeError("a bug")
            return [b"ok"]

        acceptor, port = await listening(handle)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"fail"))
        assert await reader.read() == b""
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"fine"))
        assert await reader.readexactly(2) == b"ok"
        writer.close()
        acceptor.close()

    asyncio.run(main())
    assert "a bug" in caplog.text


@pytest.mark.long
def test_a_slow_reader_gets_a_large_response_whole(tmp_path: Path) -> None:
    content = os.urandom(6 << 20)
    path = tmp_path / "segment"
    path.write_bytes(content)

    async def main() -> bytes:
        fd = os.open(path, os.O_RDONLY)

        def handle(_: memoryview, __: Peer) -> Reply:
            return [b"head", Slice(fd, 0, len(content)), b"tail"]

        acceptor, port = await listening(handle)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 12)
        writer.write(framed(b"give") + framed(b"give"))
        response = b""
        while len(response) < 2 * (len(content) + 8):
            response += await reader.read(1 << 16)
        writer.close()
        acceptor.close()
        os.close(fd)
        return response

    assert asyncio.run(main()) == (b"head" + content + b"tail") * 2


def test_the_error_for_a_port_in_use_names_it_and_a_remedy() -> None:
    async def main() -> None:
        acceptor, port = await listening(lambda *_: None)
        other = Acceptor(
            open_channel=partial(DirectChannel, lambda *_: None, frame_bytes_max=1),
            settings=ListenSettings(connections_max_idle_ms=0),
        )
        with pytest.raises(ListenError, match=rf"127.0.0.1:{port} is in use .* --port"):
            other.bind(Endpoint("PLAINTEXT", "127.0.0.1", port))
        acceptor.close()

    asyncio.run(main())


def acceptor_without_clients() -> Acceptor:
    return Acceptor(
        open_channel=partial(DirectChannel, lambda *_: None, frame_bytes_max=1),
        settings=ListenSettings(connections_max_idle_ms=0),
    )


def test_a_port_of_a_broker_that_does_not_accept_yet_is_refused_to_a_second_one() -> None:
    async def main() -> None:
        one, other = acceptor_without_clients(), acceptor_without_clients()
        port = one.bind(LOOPBACK).port
        with pytest.raises(ListenError, match=rf"127.0.0.1:{port} is in use .* --port or listeners=$"):
            other.bind(Endpoint("PLAINTEXT", "127.0.0.1", port))
        other.start()
        with pytest.raises(ListenError, match=r"choose another port with listeners=$"):
            other.bind(Endpoint("OTHER", "127.0.0.1", port))
        one.close()
        other.close()

    asyncio.run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse the second bind")
def test_a_port_with_connections_of_an_earlier_broker_is_bound_and_a_second_one_is_named_at_its_start() -> None:
    async def main() -> None:
        first, one, other = acceptor_without_clients(), acceptor_without_clients(), acceptor_without_clients()
        port = first.bind(LOOPBACK).port
        first.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not first.connection_count:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0)
        first.close()  # The side that closes first keeps the port for a minute (TIME_WAIT).
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", port)
        one.bind(endpoint)
        other.bind(endpoint)
        one.start()
        with pytest.raises(ListenError, match=rf"127.0.0.1:{port} is in use .* --port"):
            other.start()
        one.close()
        other.close()

    asyncio.run(main())


def test_a_full_broker_closes_an_idle_connection_for_the_protected_listener() -> None:
    limits = ConnectionLimits(LimitSettings(connections=2, protected_listener="INSIDE"))

    async def main() -> None:
        acceptor = Acceptor(
            open_channel=partial(DirectChannel, lambda *_: [b"ok"], frame_bytes_max=100),
            settings=ListenSettings(limits=limits),
        )
        outside = acceptor.bind(LOOPBACK).port
        inside = acceptor.bind(Endpoint("INSIDE", "127.0.0.1", 0)).port
        acceptor.start()

        async def call(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
            streams[1].write(framed(b"x"))
            assert await streams[0].readexactly(2) == b"ok"

        clients = [await asyncio.open_connection("127.0.0.1", outside) for _ in range(2)]
        for client in clients:
            await call(client)
        waiting = await asyncio.open_connection("127.0.0.1", outside)
        broker = await asyncio.open_connection("127.0.0.1", inside)
        await call(broker)
        assert await clients[0][0].read() == b""
        await call(clients[1])
        assert limits.count == 2
        broker[1].close()
        # The place of the broker goes to the client that waited in the backlog.
        await call(waiting)
        for _, writer in (*clients, waiting):
            writer.close()
        acceptor.close()

    asyncio.run(main())


@pytest.mark.long
def test_an_address_above_its_rate_is_held_and_then_closed(caplog: pytest.LogCaptureFixture) -> None:
    limits = ConnectionLimits()
    limits.connection_rate_of = lambda _address: 1.0

    async def main() -> None:
        acceptor = Acceptor(
            open_channel=partial(DirectChannel, lambda *_: [b"ok"], frame_bytes_max=100),
            settings=ListenSettings(limits=limits),
        )
        port = acceptor.bind(LOOPBACK).port
        acceptor.start()
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(11)]
        for _, writer in clients:
            writer.write(framed(b"x"))
        for reader, _ in clients[:10]:
            assert await reader.readexactly(2) == b"ok"
        with contextlib.suppress(ConnectionResetError):
            assert await clients[10][0].read() == b""
        for _, writer in clients:
            writer.close()
        acceptor.close()

    with caplog.at_level(logging.INFO):
        asyncio.run(main())
    assert "connection refused listener=PLAINTEXT peer=/127.0.0.1 reason=connection_creation_rate" in caplog.text


@pytest.mark.parametrize("size", [-1, 8_192])
def test_the_buffers_of_connections_have_the_sizes_of_the_properties(size: int) -> None:
    async def main() -> tuple[int, int]:
        acceptor, port = await listening(lambda frame, _: [bytes(frame)], buffer_bytes=size)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"x"))
        await reader.readexactly(1)
        (connection,) = vars(acceptor)["_connections"]
        sock: socket.socket = connection._sock
        sent = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        received = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        writer.close()
        acceptor.close()
        return sent, received

    sizes = asyncio.run(main())
    assert (sizes == (2 * 8_192, 2 * 8_192)) is (size != -1), "Linux doubles them"


@pytest.mark.parametrize("full", ["PLAINTEXT", "CONTROL"])
def test_requests_of_the_control_plane_and_of_others_have_memory_of_their_own(full: str) -> None:
    others, frame = 9, framed(bytes(FRAME_MAX - 4))
    limit = FRAME_MAX

    async def main() -> None:
        acceptor = Acceptor(
            open_channel=partial(DirectChannel, lambda frame, _: [bytes(frame)], frame_bytes_max=FRAME_MAX),
            settings=ListenSettings(urgent_listener="CONTROL", request_bytes_max=limit),
        )
        ports = {name: acceptor.bind(replace(LOOPBACK, listener=name)).port for name in ("PLAINTEXT", "CONTROL")}
        acceptor.start()
        pools = {"PLAINTEXT": acceptor._buffers, "CONTROL": acceptor._urgent_buffers}
        begun = [await asyncio.open_connection("127.0.0.1", ports[full]) for _ in range(others)]
        for _, writer in begun:
            writer.write(frame[:-1])
        async with asyncio.timeout(20):
            while not pools[full]._growing and not pools[full]._waiting:  # noqa: ASYNC110 - waits for another socket
                await asyncio.sleep(0.005)
            for name, port in ports.items():
                if name != full:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(framed(b"x"))
                    assert await reader.readexactly(1) == b"x"
                    writer.close()
            assert pools[full].used_bytes <= limit + FRAME_MAX + others * MAPPED_BYTES_MIN
            for _, writer in begun:
                writer.write(frame[-1:])
            assert [len(await reader.readexactly(FRAME_MAX - 4)) for reader, _ in begun] == [FRAME_MAX - 4] * others
        for _, writer in begun:
            writer.close()
        acceptor.close()

    asyncio.run(main())
