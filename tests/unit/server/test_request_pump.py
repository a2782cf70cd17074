"""The requests of one connection: order, turns, waits and failures, without a socket."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.errors import MalformedRequest
from kctl.server.network.connections.buffer_pool import BufferPool
from kctl.server.network.connections.channel import (
    ChannelEnded,
    DirectChannel,
    Handle,
    KeepsFrame,
    PerformedReply,
    Reply,
    ThrottledReply,
)
from kctl.server.network.connections.inbox import Inbox
from kctl.server.network.connections.request_pump import (
    TURN_REQUEST_BYTES_MAX,
    TURN_REQUESTS_MAX,
    TURN_RESPONSE_BYTES_MAX,
    WAITING_PRODUCES_MAX,
    RequestPump,
    TurnEnd,
)
from kctl.server.requests.context import Peer
from tests.unit.server.test_inbox import feed, framed


class Scene:
    """A pump that collects the responses."""

    def __init__(self, handle: Handle) -> None:
        self.pool = BufferPool(is_poisoned=True)
        self.inbox = Inbox(self.pool, 64 << 20)
        self.sent: list[bytes] = []
        self.wakes = 0
        self.woken = asyncio.Event()
        self.pump = RequestPump(
            self.inbox,
            DirectChannel(handle, Peer("/127.0.0.1", "PLAINTEXT"), frame_bytes_max=64 << 20),
            loop=asyncio.get_running_loop(),
            put=self._put,
            on_wake=self._wake,
        )
        self.pump._now_s = float  # Time stands still: on a busy machine a turn ends after fewer requests.

    def _put(self, chunks: list[Any]) -> int:
        data = b"".join(bytes(chunk) for chunk in chunks)
        self.sent.append(data)
        return len(data)

    def _wake(self) -> None:
        self.wakes += 1
        self.woken.set()


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


def test_a_turn_without_time_still_handles_a_request() -> None:
    async def main() -> None:
        scene = Scene(echo)
        feed(scene.inbox, framed(b"x") * 5)
        assert scene.pump.turn(0.0) is TurnEnd.HAS_MORE
        assert 1 <= len(scene.sent) <= 2

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
        assert scene.pump.turn() is TurnEnd.ANSWERED_ONE
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


PRODUCE, FETCH = b"\x00\x00", b"\x00\x01"


class Performed(PerformedReply):
    may_overlap = True


class Requests(Scene):
    """Requests that are performed at once and wait until `complete` is called, as Produce with acks=all does.

    One with `at once` in its frame does not wait, one with `slow` is not performed before it is complete, one with
    `bad` fails, and one with `no reply` has none.
    """

    def __init__(self) -> None:
        super().__init__(self._handle)
        self.performed: list[bytes] = []
        self.waits: dict[bytes, asyncio.Future[Reply]] = {}

    def _handle(self, frame: memoryview, _peer: Peer) -> Reply | asyncio.Future[Reply]:
        name = bytes(frame)
        self.performed.append(name)
        if b"bad" in name:
            raise MalformedRequest(name.decode())
        if b"no reply" in name:
            return None
        if b"at once" in name:
            return [name]
        reply = asyncio.get_running_loop().create_future() if b"slow" in name else Performed()
        self.waits[name] = reply
        return reply

    async def complete(self, name: bytes, reply: Reply | None = None) -> None:
        self.waits.pop(name).set_result(reply or [name])
        await asyncio.sleep(0)


def test_a_performed_request_does_not_delay_the_next_one_of_its_api() -> None:
    async def main() -> None:
        scene = Requests()
        names = [PRODUCE + name for name in (b"1", b"2", b"3 at once", b"4 no reply", b"5")]
        feed(scene.inbox, b"".join(map(framed, names)))
        assert scene.pump.turn() is TurnEnd.WAITS
        assert scene.performed == names
        await scene.complete(names[4])
        await scene.complete(names[1])
        assert (scene.sent, scene.wakes) == ([], 0)
        await scene.complete(names[0])
        assert (scene.sent, scene.wakes) == ([*names[:3], names[4]], 1)
        feed(scene.inbox, framed(FETCH + b"at once"))
        assert scene.pump.turn() is TurnEnd.ANSWERED_ONE
        assert scene.sent[4:] == [FETCH + b"at once"]

    asyncio.run(main())


@pytest.mark.parametrize("second", [FETCH + b"2", FETCH + b"2 at once"])
def test_a_request_of_another_api_waits_for_performed_ones(second: bytes) -> None:
    async def main() -> None:
        scene = Requests()
        feed(scene.inbox, framed(PRODUCE + b"1") + framed(second))
        assert scene.pump.turn() is TurnEnd.WAITS
        assert scene.performed == [PRODUCE + b"1"]
        await scene.complete(PRODUCE + b"1")
        scene.pump.turn()
        assert scene.performed == [PRODUCE + b"1", second]

    asyncio.run(main())


def test_nothing_overtakes_a_request_that_is_not_performed_yet() -> None:
    async def main() -> None:
        scene = Requests()
        feed(scene.inbox, framed(PRODUCE + b"1") + framed(PRODUCE + b"2 slow") + framed(PRODUCE + b"3"))
        assert scene.pump.turn() is TurnEnd.WAITS
        await scene.complete(PRODUCE + b"1")
        assert scene.pump.turn() is TurnEnd.WAITS
        assert scene.performed == [PRODUCE + b"1", PRODUCE + b"2 slow"]
        await scene.complete(PRODUCE + b"2 slow")
        scene.pump.turn()
        assert scene.performed[2:] == [PRODUCE + b"3"]
        assert scene.sent == [PRODUCE + b"1", PRODUCE + b"2 slow"]

    asyncio.run(main())


def test_a_bounded_number_of_requests_waits() -> None:
    async def main() -> None:
        scene = Requests()
        names = [PRODUCE + b"%d" % number for number in range(2 * WAITING_PRODUCES_MAX)]
        feed(scene.inbox, b"".join(map(framed, names)))
        assert scene.pump.turn() is TurnEnd.WAITS
        assert scene.performed == names[:WAITING_PRODUCES_MAX]
        await scene.complete(names[0])
        assert scene.pump.turn() is TurnEnd.WAITS
        assert scene.performed == names[: WAITING_PRODUCES_MAX + 1]

    asyncio.run(main())


@pytest.mark.parametrize("bad", [framed(PRODUCE + b"2 bad"), struct.pack(">i", -1) + PRODUCE])
def test_the_responses_before_a_malformed_request_are_sent(bad: bytes) -> None:
    async def main() -> None:
        scene = Requests()
        feed(scene.inbox, framed(PRODUCE + b"1") + bad + framed(PRODUCE + b"3"))
        assert scene.pump.turn() is TurnEnd.WAITS
        await scene.complete(PRODUCE + b"1")
        assert scene.sent == [PRODUCE + b"1"]
        with pytest.raises(MalformedRequest):
            scene.pump.turn()
        assert PRODUCE + b"3" not in scene.performed

    asyncio.run(main())


def test_closing_cancels_all_requests_that_wait() -> None:
    async def main() -> None:
        scene = Requests()
        feed(scene.inbox, framed(PRODUCE + b"1") + framed(PRODUCE + b"2"))
        scene.pump.turn()
        scene.pump.close()
        assert [wait.cancelled() for wait in scene.waits.values()] == [True, True]
        await asyncio.sleep(0)
        assert scene.wakes == 0

    asyncio.run(main())


def test_a_quota_mutes_the_connection_for_the_last_throttle_time() -> None:
    async def main() -> None:
        scene = Requests()
        feed(scene.inbox, framed(PRODUCE + b"1") + framed(PRODUCE + b"2") + framed(PRODUCE + b"3"))
        scene.pump.turn()
        await scene.complete(PRODUCE + b"1", ThrottledReply([PRODUCE + b"1"], 1 << 20))
        assert scene.pump.is_muted
        await scene.complete(PRODUCE + b"2", ThrottledReply([PRODUCE + b"2"], 0))
        assert scene.sent == [PRODUCE + b"1", PRODUCE + b"2"], "a muted connection takes no requests"
        feed(scene.inbox, framed(PRODUCE + b"4"))
        assert scene.pump.turn() is TurnEnd.WAITS
        scene.woken.clear()
        await scene.woken.wait()
        scene.pump.turn()
        assert scene.performed[3:] == [PRODUCE + b"4"]

    asyncio.run(main())


def test_the_last_words_of_a_channel_follow_the_responses_before_them() -> None:
    async def main() -> None:
        scene = Requests()
        feed(scene.inbox, framed(PRODUCE + b"1") + framed(PRODUCE + b"2 slow"))
        scene.pump.turn()
        scene.waits[PRODUCE + b"2 slow"].set_exception(ChannelEnded([b"last"]))
        await asyncio.sleep(0)
        assert scene.sent == []
        await scene.complete(PRODUCE + b"1")
        assert scene.sent == [PRODUCE + b"1", b"last"]
        with pytest.raises(ChannelEnded):
            scene.pump.turn()

    asyncio.run(main())


KINDS = st.tuples(st.sampled_from([PRODUCE, FETCH]), st.sampled_from([b"", b" at once", b" slow", b" no reply"]))


@settings(deadline=None)
@given(st.lists(KINDS, max_size=40), st.randoms(use_true_random=False))
def test_requests_are_performed_and_answered_in_order(kinds: list[tuple[bytes, bytes]], chance: Any) -> None:
    async def main() -> None:
        scene = Requests()
        names = [key + b"%d" % number + kind for number, (key, kind) in enumerate(kinds)]
        feed(scene.inbox, b"".join(map(framed, names)))
        while scene.pump.turn() is not TurnEnd.NEEDS_BYTES or scene.waits:
            waiting = [name for name in scene.performed if name in scene.waits]
            assert all(name[:2] == waiting[0][:2] and b"slow" not in name for name in waiting[:-1])
            if waiting:
                await scene.complete(chance.choice(waiting))
        assert scene.performed == names
        assert scene.sent == [name for name in names if b"no reply" not in name]

    asyncio.run(main())


@pytest.mark.parametrize("is_behind_another", [False, True])
@pytest.mark.parametrize("closes", [False, True])
def test_a_kept_frame_stays_valid_while_more_bytes_arrive(closes: bool, is_behind_another: bool) -> None:
    before = b"kk first" if is_behind_another else b""
    waiting: list[asyncio.Future[Reply]] = []
    kept: list[memoryview] = []
    replies: list[KeepsFrame] = []

    def keep(frame: memoryview, _peer: Peer) -> Reply | asyncio.Future[Reply]:
        if frame == before:
            waiting.append(Performed())
            return waiting[0]
        if frame[0] != ord("k"):
            return [bytes(frame)]
        kept.append(frame)
        replies.append(KeepsFrame(loop=asyncio.get_running_loop()))
        return replies[-1]

    async def main() -> None:
        scene = Scene(keep)
        large, following = b"k" * 3_000_000, b"f" * 1_000
        feed(scene.inbox, (framed(before) if before else b"") + framed(large) + framed(following)[:500])
        while scene.pump.turn() is TurnEnd.HAS_MORE:
            pass
        feed(scene.inbox, framed(following)[500:] + framed(b"x" * 60_000) * 3)
        assert scene.pool.lent_bytes >= len(large)
        if closes:
            scene.pump.close()
            assert replies[0].cancelled()
        else:
            replies[0].set_result([b"done"])
            for reply in waiting:
                reply.set_result([before])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert scene.pool.lent_bytes < len(large)
        while not closes and scene.pump.turn() is TurnEnd.HAS_MORE:
            pass
        scene.inbox.settle()
        assert bytes(kept[0]) == large, "also when its request was cancelled, because a thread may read it"
        assert scene.sent == ([] if closes else [*filter(None, [before]), b"done", following, *[b"x" * 60_000] * 3])
        assert scene.pool.lent_bytes == 0

    play(main)
