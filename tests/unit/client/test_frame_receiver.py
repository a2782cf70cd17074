"""Frames are received whole and in order, in any segmentation."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from kctl.client.connections.frame_receiver import FrameReceiver
from kctl.client.connections.framing import SIZE

SIZES = st.lists(st.one_of(st.integers(0, 40), st.integers(60_000, 200_000)), max_size=6)
STEPS = st.lists(st.one_of(st.integers(1, 50), st.integers(1, 300_000)), min_size=1, max_size=8)


def received(data: bytes, steps: list[int]) -> tuple[list[bytes], list[OSError | int | None]]:
    """The received frames if the data arrives in pieces of these sizes, repeated."""
    frames: list[memoryview] = []
    reasons: list[OSError | int | None] = []
    receiver = FrameReceiver(frames.append, reasons.append)
    position = turn = 0
    while position < len(data) and not reasons:
        buffer = receiver.get_buffer(-1)
        size = min(steps[turn % len(steps)], len(buffer), len(data) - position)
        assert size > 0
        buffer[:size] = data[position : position + size]
        receiver.buffer_updated(size)
        position, turn = position + size, turn + 1
    return [bytes(frame) for frame in frames], reasons


@given(SIZES, STEPS)
@example([65_532], [65_536])
@example([65_533], [65_536])
@example([1, 65_530, 3], [65_536])
def test_frames_come_whole_and_in_order(sizes: list[int], steps: list[int]) -> None:
    frames = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    data = b"".join(SIZE.pack(len(frame)) + frame for frame in frames)
    assert received(data, steps) == (frames, [])


@given(STEPS)
def test_an_impossible_frame_size_is_refused(steps: list[int]) -> None:
    data = SIZE.pack(3) + b"abc" + b"HTTP/1.1 400 Bad Request"
    frames, reasons = received(data, steps)
    assert (frames, reasons) == ([b"abc"], [int.from_bytes(b"HTTP")])


def arrive(receiver: FrameReceiver, frame: bytes) -> None:
    data = SIZE.pack(len(frame)) + frame
    while data:
        buffer = receiver.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        receiver.buffer_updated(size)
        data = data[size:]


@given(
    st.lists(st.tuples(st.one_of(st.integers(0, 70_000), st.integers(70_000, 2_000_000)), st.booleans()), max_size=8)
)
def test_a_buffer_in_use_is_not_overwritten(arrivals: list[tuple[int, bool]]) -> None:
    frames: list[memoryview] = []
    receiver = FrameReceiver(frames.append, lambda _: None)
    kept: list[tuple[memoryview, bytes]] = []
    for number, (size, is_kept) in enumerate(arrivals):
        content = bytes([number + 1]) * size
        arrive(receiver, content)
        frame = frames.pop()
        assert frame == content
        if is_kept:
            kept.append((frame[size // 2 :], content[size // 2 :]))
        del frame
    assert all(view == content for view, content in kept)


def test_the_buffer_of_a_large_frame_is_reused_once_released() -> None:
    frames: list[memoryview] = []
    receiver = FrameReceiver(frames.append, lambda _: None)
    arrive(receiver, b"a" * 1_000_000)
    first = frames.pop().obj
    arrive(receiver, b"b" * 990_000)
    second = frames.pop()
    assert second.obj is first
    arrive(receiver, b"c" * 1_000_000)
    assert frames.pop().obj is not first
    assert second == b"b" * 990_000


def test_a_small_frame_does_not_take_a_large_spare_buffer() -> None:
    frames: list[memoryview] = []
    receiver = FrameReceiver(frames.append, lambda _: None)
    arrive(receiver, b"a" * 1_000_000)
    first = frames.pop().obj
    arrive(receiver, b"b" * 100_000)
    assert frames[-1].obj is not first
    arrive(receiver, b"c" * 1_000_000)
    assert frames[-1].obj is first
