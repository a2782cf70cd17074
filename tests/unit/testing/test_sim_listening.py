"""A broker's listeners in simulation: frames, order of responses, malformed requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from kctl.errors import MalformedRequest
from kctl.model import Endpoint
from kctl.server.network.connections.channel import DirectChannel, Reply
from kctl.server.network.listen_settings import ListenSettings
from kctl.server.requests.context import Peer
from kctl.testing.sim_listening import SimListening
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.testing.sim_network import SimNetwork

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def play(
    handle: Callable[[memoryview, Peer], Reply | asyncio.Future[Reply]],
    scene: Callable[[asyncio.StreamReader, asyncio.StreamWriter, SimListening], Awaitable[None]],
) -> None:
    async def main(loop: SimLoop) -> None:
        network = SimNetwork(loop)
        listening = SimListening(
            network,
            open_channel=partial(DirectChannel, handle, frame_bytes_max=100),
            settings=ListenSettings(connections_max_idle_ms=0),
        )
        listening.bind(Endpoint("PLAINTEXT", "broker", 9092))
        with network.on_host("broker"):
            listening.start()
        reader, writer = await asyncio.open_connection("broker", 9092)
        await scene(reader, writer, listening)
        writer.close()
        listening.close()

    simulate(main, seed=1)


def test_responses_are_in_order_however_frames_arrive() -> None:
    loop_of: list[asyncio.AbstractEventLoop] = []

    def handle(frame: memoryview, _peer: Peer) -> Reply | asyncio.Future[Reply]:
        loop = asyncio.get_running_loop()
        loop_of.append(loop)
        response: Reply = [framed(bytes(frame).upper())]
        if frame[0] != ord("s"):
            return response
        slow: asyncio.Future[Reply] = loop.create_future()
        loop.call_later(1, slow.set_result, response)
        return slow

    async def scene(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _listening: SimListening) -> None:
        data = framed(b"slow") + framed(b"fast") + framed(b"s") + framed(b"end")
        for position in range(len(data)):
            writer.write(data[position : position + 1])
        expected = framed(b"SLOW") + framed(b"FAST") + framed(b"S") + framed(b"END")
        assert await reader.readexactly(len(expected)) == expected

    play(handle, scene)


def test_a_frame_without_a_response_does_not_block_the_next_one() -> None:
    def handle(frame: memoryview, _peer: Peer) -> Reply:
        return None if bytes(frame) == b"quiet" else [framed(bytes(frame))]

    async def scene(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _listening: SimListening) -> None:
        writer.write(framed(b"quiet") + framed(b"loud"))
        assert await reader.readexactly(8) == framed(b"loud")

    play(handle, scene)


def test_a_malformed_frame_closes_the_connection_and_is_counted() -> None:
    def handle(_frame: memoryview, _peer: Peer) -> Reply:
        raise MalformedRequest("nonsense")

    async def scene(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listening: SimListening) -> None:
        writer.write(framed(b"x"))
        assert await reader.read() == b""
        assert listening.malformed_count == 1

    play(handle, scene)


def test_a_frame_that_is_too_large_closes_the_connection() -> None:
    def handle(frame: memoryview, _peer: Peer) -> Reply:
        return [framed(bytes(frame))]

    async def scene(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listening: SimListening) -> None:
        writer.write((101).to_bytes(4, "big"))
        assert await reader.read() == b""
        assert listening.malformed_count == 1

    play(handle, scene)
