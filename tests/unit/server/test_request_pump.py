"""The requests of one connection: order, turns, waits and failures, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kctl.errors import MalformedRequest
from kctl.limits import TURN_REQUEST_BYTES_MAX, TURN_REQUESTS_MAX, TURN_RESPONSE_BYTES_MAX
from kctl.server.network.buffer_pool import BufferPool
from kctl.server.network.channel import DirectChannel, Handle, KeepsFrame, Reply
from kctl.server.network.inbox import Inbox
from kctl.server.network.request_pump import RequestPump, TurnEnd
from kctl.server.requests.context import Peer
from tests.unit.server.test_inbox import feed, framed


class Scene:
    """A pump that collects the responses."""

    def __init__(self, handle: Handle) -> None:
        self.pool = BufferPool(is_poisoned=True)
        self.inbox = Inbox(self.pool, 64 << 20)
        self.sent: list[bytes] = []
        self.wakes = 0
        self.pump = RequestPump(
            self.inbox,
            DirectChannel(handle, Peer("/127.0.0.1", "PLAINTEXT"), frame_bytes_max=64 << 20),
            loop=asyncio.get_running_loop(),
            put=self._put,
            on_wake=self._wake,
        )

    def _put(self, chunks: list[Any]) -> int:
        data = b"".join(bytes(chunk) for chunk in chunks)
        self.sent.append(data)
        return len(data)

    def _wake(self) -> None:
        self.wakes += 1


def echo(frame: memoryview, _peer: Peer) -> Reply:
    return [bytes(frame)]


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


def test_a_turn_ends_after_a_bounded_number_of_requests() -> None:
    async def main() -> None:
        scene = Scene(echo)
        feed(scene.inbox, framed(b"x") * (2 * TURN_REQUESTS_MAX + 1))
        assert scene.pump.turn() is TurnEnd.HAS_MORE
        assert len(scene.sent) <= TURN_REQUESTS_MAX
        while scene.pump.turn() is TurnEnd.HAS_MORE:
            pass
        assert len(scene.sent) == 2 * TURN_REQUESTS_MAX + 1

    play(main)


def test_a_turn_ends_after_a_bounded_number_of_request_bytes() -> None:
    async def main() -> None:
        scene = Scene(lambda _frame, _peer: None)
        feed(scene.inbox, framed(bytes(TURN_REQUEST_BYTES_MAX // 2)) * 5)
        left = len(scene.inbox)
        assert scene.pump.turn() is TurnEnd.HAS_MORE
        assert left - len(scene.inbox) <= TURN_REQUEST_BYTES_MAX * 3 // 2

    play(main)


def test_a_turn_ends_after_a_bounded_number_of_response_bytes() -> None:
    async def main() -> None:
        scene = Scene(lambda _frame, _peer: [bytes(TURN_RESPONSE_BYTES_MAX // 2)])
        feed(scene.inbox, framed(b"x") * 5)
        assert scene.pump.turn() is TurnEnd.HAS_MORE
        assert len(scene.sent) == 2

    play(main)


def test_the_next_request_waits_for_the_response_to_the_one_before() -> None:
    async def main() -> None:
        waits: list[asyncio.Future[Reply]] = []

        def handle(frame: memoryview, _peer: Peer) -> Reply | asyncio.Future[Reply]:
            if bytes(frame) == b"wait":
                waits.append(asyncio.get_running_loop().create_future())
                return waits[-1]
            return [bytes(frame)]

        scene = Scene(handle)
        feed(scene.inbox, framed(b"wait") + framed(b"next"))
        assert scene.pump.turn() is TurnEnd.WAITS
        assert scene.pump.turn() is TurnEnd.WAITS
        assert scene.sent == []
        waits[0].set_result([b"waited"])
        await asyncio.sleep(0)
        assert scene.wakes == 1
        assert scene.pump.turn() is TurnEnd.NEEDS_BYTES
        assert scene.sent == [b"waited", b"next"]

    play(main)


@pytest.mark.parametrize("error", [MalformedRequest("as asked"), RuntimeError("a bug")])
def test_a_request_that_fails_after_a_wait_fails_the_next_turn(error: Exception) -> None:
    async def main() -> None:
        wait: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        scene = Scene(lambda _frame, _peer: wait)
        feed(scene.inbox, framed(b"x"))
        scene.pump.turn()
        wait.set_exception(error)
        await asyncio.sleep(0)
        assert scene.wakes == 1
        with pytest.raises(type(error)):
            scene.pump.turn()

    play(main)


def test_closing_cancels_what_waits_and_frees_the_buffer() -> None:
    async def main() -> None:
        wait: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        scene = Scene(lambda _frame, _peer: wait)
        feed(scene.inbox, framed(b"x") + framed(b"y"))
        scene.pump.turn()
        scene.pump.close()
        assert wait.cancelled()
        assert scene.pool.lent_bytes == 0
        await asyncio.sleep(0)
        assert scene.wakes == 0

    play(main)


@pytest.mark.parametrize("closes", [False, True])
def test_a_kept_frame_stays_valid_while_more_bytes_arrive(closes: bool) -> None:
    kept: list[memoryview] = []
    replies: list[KeepsFrame] = []

    def keep(frame: memoryview, _peer: Peer) -> Reply | asyncio.Future[Reply]:
        if frame[0] != ord("k"):
            return [bytes(frame)]
        kept.append(frame)
        replies.append(KeepsFrame(loop=asyncio.get_running_loop()))
        return replies[-1]

    async def main() -> None:
        scene = Scene(keep)
        large, following = b"k" * 3_000_000, b"f" * 1_000
        feed(scene.inbox, framed(large) + framed(following)[:500])
        assert scene.pump.turn() is TurnEnd.WAITS
        feed(scene.inbox, framed(following)[500:] + framed(b"x" * 60_000) * 3)
        assert scene.pool.lent_bytes >= len(large)
        if closes:
            scene.pump.close()
            assert replies[0].cancelled()
        else:
            replies[0].set_result([b"done"])
        await asyncio.sleep(0)
        assert scene.pool.lent_bytes < len(large)
        while not closes and scene.pump.turn() is TurnEnd.HAS_MORE:
            pass
        scene.inbox.settle()
        assert bytes(kept[0]) == large, "also when its request was cancelled, because a thread may read it"
        assert scene.sent == ([] if closes else [b"done", following, *[b"x" * 60_000] * 3])
        assert scene.pool.lent_bytes == 0

    play(main)
