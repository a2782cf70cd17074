"""Frames in received bytes, and the memory for incomplete ones."""

from __future__ import annotations

import asyncio
import os
import struct
import weakref
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import MalformedRequest
from kctl.server.network.connections.buffer_pool import MAPPED_BYTES_MIN, BufferPool, rounded_up
from kctl.server.network.connections.inbox import RECEIVED_AT_ONCE_MAX, Inbox
from tests.rows import for_rows

FRAME_MAX = 16 << 20


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def feed(inbox: Inbox, data: bytes) -> None:
    while data:
        room = inbox.buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        inbox.received(count)
        data = data[count:]


def taken(inbox: Inbox) -> list[bytes]:
    frames = []
    while (frame := inbox.next_frame()) is not None:
        frames.append(bytes(frame))
    return frames


@given(
    st.lists(st.one_of(st.binary(max_size=300), st.integers(0, 200_000).map(bytes)), max_size=30),
    st.lists(st.integers(1, 90_000), min_size=1, max_size=50),
    st.lists(st.booleans(), min_size=1),
)
def test_frames_come_out_whole_however_the_bytes_arrive(
    frames: list[bytes], cuts: list[int], takes: list[bool]
) -> None:
    pool = BufferPool(is_poisoned=True)
    inbox = Inbox(pool, FRAME_MAX)
    data = b"".join(framed(frame) for frame in frames)
    seen: list[bytes] = []
    position, turn = 0, 0
    while position < len(data):
        step = cuts[turn % len(cuts)]
        feed(inbox, data[position : position + step])
        if takes[turn % len(takes)]:
            seen += taken(inbox)
            inbox.settle()
        position, turn = position + step, turn + 1
    assert seen + taken(inbox) == frames
    inbox.settle()
    assert pool.lent_bytes == 0


def test_a_frame_of_any_size_up_to_the_bound_is_received_whole() -> None:
    inbox = Inbox(BufferPool(), FRAME_MAX)
    payload = os.urandom(FRAME_MAX)
    feed(inbox, framed(payload) + framed(b"next"))
    assert taken(inbox) == [payload, b"next"]


@pytest.mark.parametrize("size", [-1, -(1 << 31), FRAME_MAX + 1])
def test_an_impossible_length_is_refused(size: int) -> None:
    inbox = Inbox(BufferPool(), FRAME_MAX)
    feed(inbox, struct.pack(">i", size))
    with pytest.raises(MalformedRequest):
        inbox.next_frame()


def test_an_idle_connection_holds_no_buffer() -> None:
    pool = BufferPool()
    inbox = Inbox(pool, FRAME_MAX)
    feed(inbox, framed(b"request"))
    assert taken(inbox) == [b"request"]
    inbox.settle()
    assert pool.lent_bytes == 0


@for_rows("received", [1, 4, 5, 1_000, 20_000, 100_000, 500_000])
def test_memory_grows_with_received_bytes_and_not_with_the_declared_length(received: int) -> None:
    pool = BufferPool()
    inbox = Inbox(pool, 100 << 20)
    data = struct.pack(">i", 100 << 20) + bytes(received)
    for position in range(0, received, 1 << 14):
        feed(inbox, data[position : min(position + (1 << 14), received)])
        assert inbox.next_frame() is None
        inbox.settle()
    assert pool.lent_bytes <= max(4 * received, 256)


@pytest.mark.long
def test_a_large_frame_is_not_copied_again_once_a_mebibyte_has_arrived() -> None:
    inbox = Inbox(BufferPool(), 100 << 20)
    feed(inbox, struct.pack(">i", 50 << 20) + bytes(1 << 20))
    inbox.settle()
    memory = inbox.buffer().obj
    feed(inbox, bytes(49 << 20))
    frame = inbox.next_frame()
    assert frame is not None
    assert frame.obj is memory


def test_reading_stops_while_a_whole_frame_and_enough_read_ahead_are_buffered() -> None:
    inbox = Inbox(BufferPool(), FRAME_MAX)
    feed(inbox, framed(bytes(100)))
    expected = [inbox.needs_bytes]
    feed(inbox, framed(bytes(1 << 16)))
    expected.append(inbox.needs_bytes)
    inbox.next_frame()
    inbox.next_frame()
    expected.append(inbox.needs_bytes)
    assert expected == [True, False, True]


def test_reading_continues_while_the_first_frame_is_incomplete() -> None:
    inbox = Inbox(BufferPool(), FRAME_MAX)
    feed(inbox, framed(bytes(1 << 20))[:-1])
    assert inbox.needs_bytes


def test_the_memory_of_a_very_large_frame_is_not_kept() -> None:
    pool = BufferPool()
    inbox = Inbox(pool, 100 << 20)
    feed(inbox, framed(bytes(20 << 20)))
    inbox.next_frame()
    inbox.close()
    assert pool.lent_bytes == 0
    assert pool.retained_bytes <= 16 << 20


@given(
    sizes=st.lists(st.integers(1, 400_000), min_size=1, max_size=12),
    chunk=st.integers(1_000, 100_000),
    bytes_max=st.integers(1, 600_000),
    seed=st.integers(0, 1000),
)
def test_the_budget_bounds_memory_and_every_frame_arrives(
    sizes: list[int], chunk: int, bytes_max: int, seed: int
) -> None:
    """Connections send one frame each, in pieces, in any order; memory is at most the limit plus one frame."""
    pool = BufferPool(bytes_max=bytes_max)
    inboxes = [Inbox(pool, 1 << 20) for _ in sizes]
    left = [memoryview(struct.pack(">i", size) + bytes(size)) for size in sizes]
    ready = set(range(len(sizes)))
    chance, arrived = Random(seed), []
    largest = rounded_up(max(sizes) + 4)
    while ready:
        number = chance.choice(sorted(ready))
        inbox = inboxes[number]
        if not inbox.has_memory():
            ready.discard(number)
            pool.wait_for_room(partial(ready.add, number), is_growing=len(inbox) > 0)
            continue
        buffer = inbox.buffer()
        count = min(chunk, len(buffer), len(left[number]))
        buffer[:count] = left[number][:count]
        left[number] = left[number][count:]
        inbox.received(count)
        # Growing copies from one buffer to the next, so both exist for a moment.
        assert pool.lent_bytes <= bytes_max + 2 * largest + MAPPED_BYTES_MIN
        if inbox.next_frame() is not None:
            arrived.append(number)
            ready.discard(number)
        inbox.settle()
    assert sorted(arrived) == list(range(len(sizes)))
    assert (pool.lent_bytes, pool.reserved_bytes) == (0, 0)


def test_a_large_frame_that_was_kept_is_freed_by_release() -> None:
    released: list[memoryview] = []

    async def main() -> None:
        pool = BufferPool(release=released.append)
        buffer = pool.take(1 << 24)
        memory = weakref.ref(buffer.obj)
        frame = buffer[4:100]
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pool.lend_until(done, buffer)
        del buffer
        done.set_result(None)
        for _ in range(2):
            await asyncio.sleep(0)
        del frame
        assert memory() is not None
        (view,) = released
        view.release()
        assert memory() is None

    asyncio.run(main())


def test_a_long_frame_is_received_in_pieces() -> None:
    """A socket may have received 6 MB, which takes up to 20 ms to copy to new memory."""
    inbox = Inbox(BufferPool(), FRAME_MAX)
    size = FRAME_MAX
    received = 0
    inbox.buffer()[:4] = struct.pack(">i", size)
    inbox.received(4)
    while received < size:
        room = inbox.buffer()
        assert 0 < len(room) <= RECEIVED_AT_ONCE_MAX
        count = min(len(room), size - received)
        inbox.received(count)
        received += count
    frame = inbox.next_frame()
    assert frame is not None
    assert len(frame) == size
