"""Frames of many clients are read a few milliseconds at a time, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kctl.zookeeper.embedded.connection import TURN_S, InputTurns

FRAME_S = 0.001


class SlowLoop(asyncio.SelectorEventLoop):
    """Its time passes only while frames are read."""

    now_s = 100.0

    def time(self) -> float:
        return self.now_s


class Reader:
    """Has received frames, each of which takes a millisecond."""

    def __init__(self, loop: SlowLoop, read: list[int]) -> None:
        self._loop = loop
        self._read = read
        self.left: list[int] = []
        self.reasons: set[str] = set()

    def read_frames(self, may_continue: Callable[[], bool]) -> bool:
        is_first = True
        while self.left and (is_first or may_continue()):
            is_first = False
            self._loop.now_s += FRAME_S
            self._read.append(self.left.pop(0))
        return not self.left

    def pause_reading(self, reason: str) -> None:
        self.reasons.add(reason)

    def resume_reading(self, reason: str) -> None:
        self.reasons.remove(reason)


def test_no_iteration_reads_for_longer_than_a_turn_and_all_frames_are_read() -> None:
    loop = SlowLoop()
    read: list[int] = []
    turns = InputTurns(loop)
    readers = [Reader(loop, read) for _ in range(30)]

    def receive_all() -> None:
        for number, reader in enumerate(readers):
            reader.left = list(range(1000 * number, 1000 * number + 50))
            turns.received(reader)

    async def measured() -> list[int]:
        counts: list[int] = []
        loop.call_soon(receive_all)
        while len(read) < 50 * len(readers):
            before = len(read)
            await asyncio.sleep(0)
            counts.append(len(read) - before)
        return counts

    try:
        counts = loop.run_until_complete(measured())
    finally:
        loop.close()
    assert max(counts) <= TURN_S / FRAME_S + 1
    for number, reader in enumerate(readers):
        own = [number_read for number_read in read if number_read // 1000 == number]
        assert own == list(range(1000 * number, 1000 * number + 50))
        assert reader.reasons == set()


def test_a_small_request_is_read_at_once() -> None:
    loop = SlowLoop()
    read: list[int] = []
    reader = Reader(loop, read)
    reader.left = [1, 2]
    InputTurns(loop).received(reader)
    loop.close()
    assert (read, reader.reasons) == ([1, 2], set())
