"""Receive buffers that all connections of a broker share.

A connection holds a buffer only while it has unprocessed bytes, so an idle connection costs no buffer, and the few
buffers in use stay in the processor's cache.  Sizes are powers of two.  Large buffers are anonymous memory maps:
page-aligned, which the kernel fills several times faster than a bytearray on some processors.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import mmap
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from kctl.limits import LONE_FRAME_BYTES_MAX, Subject, bound
from kctl.system.operating_system import private_pages

RETAINED_BUFFER_BYTES_MAX = bound(
    Subject.CONNECTIONS,
    "unused receive buffers that the broker keeps for reuse",
    16 << 20,
    "bytes",
    on_excess="buffers are returned to the system",
)
MAPPED_BUFFERS_MAX = bound(
    Subject.CONNECTIONS,
    "receive buffers that are memory maps, of which the system allows a process about 65,000",
    8_192,
    "buffers",
    on_excess="further buffers come from the heap",
)


MAPPED_BYTES_MIN = 1 << 16
_RETAINED_SIZE_MAX = 1 << 23
"""Larger buffers go back to the system as soon as their frame has been handled."""
_POISON = b"\xdd"
_WOKEN_MAX = 16
"""The number of connections that are resumed at a time when memory becomes free; they release it when they finish."""


def rounded_up(size: int) -> int:
    """Return the next power of two."""
    return 1 << max(size - 1, 1).bit_length()


def _call_first(waiting: dict[Callable[[], None], None]) -> None:
    on_room = next(iter(waiting))
    del waiting[on_room]
    on_room()


class BufferPool:
    """Lends writable buffers.  With `is_poisoned`, returned ones are overwritten, so that tests find late readers."""

    def __init__(
        self,
        *,
        is_poisoned: bool = False,
        release: Callable[[memoryview], object] = memoryview.release,
        bytes_max: int = -1,
    ) -> None:
        """`release` returns a large buffer to the system, which takes some milliseconds for 100 MB.

        `bytes_max` is queued.max.request.bytes: connections check `has_room` before they receive; below 1 for no limit.
        """
        self.is_limited = bytes_max > 0
        self._bytes_max = bytes_max
        self._waiting: dict[Callable[[], None], None] = {}
        """Callbacks of connections that wait to begin a request."""
        self._growing: dict[Callable[[], None], None] = {}
        """Callbacks of connections that need more memory for a request that they have begun."""
        self._exceeding: object | None = None
        self._free: defaultdict[int, list[memoryview]] = defaultdict(list)
        self.is_poisoned = is_poisoned
        self.shared = memoryview(private_pages(LONE_FRAME_BYTES_MAX))
        """For a request that is handled as soon as it has been received; not lent."""
        self._release = release
        self._mapped_count = 0
        self.retained_bytes = 0
        """Total size of the unused buffers."""
        self.lent_bytes = 0
        """Total size of the buffers that connections hold now."""
        self.reserved_bytes = 0
        """The memory that partly received frames still need."""

    @property
    def used_bytes(self) -> int:
        """Size of the buffers that connections hold now, with what partly received frames still need."""
        return self.lent_bytes + self.reserved_bytes

    @property
    def has_room(self) -> bool:
        """Whether a connection may begin to receive a request.

        As in Kafka's SimpleMemoryPool a request is admitted whole while anything is left, however large it is.
        """
        return not self.is_limited or self.used_bytes < self._bytes_max

    def reserve(self, size: int) -> None:
        """Reserve memory for a frame; a negative size releases it."""
        self.reserved_bytes += size
        if size < 0:
            self._wake()

    def may_grow(self, owner: object) -> bool:
        """Return whether a connection may receive a large request that it has begun.

        If there is no room, one connection at a time may exceed the limit: otherwise many partly received requests
        could use up the memory and wait for each other.
        """
        if self.has_room:
            return True
        if self._exceeding is None:
            self._exceeding = owner
        return self._exceeding is owner

    def has_grown(self, owner: object) -> None:
        """End the excess of `may_grow`: the large request has been processed or discarded."""
        if self._exceeding is owner:
            self._exceeding = None
            self._wake()

    def wait_for_room(self, on_room: Callable[[], None], *, is_growing: bool) -> None:
        """Call `on_room` once when there may be room, first come, first served; `has_room` must be checked again."""
        (self._growing if is_growing else self._waiting)[on_room] = None

    def stop_waiting(self, on_room: Callable[[], None]) -> None:
        """Do not call `on_room` any more."""
        self._waiting.pop(on_room, None)
        self._growing.pop(on_room, None)

    def _wake(self) -> None:
        if self._growing and (self.has_room or self._exceeding is None):
            _call_first(self._growing)
        for _ in range(min(len(self._waiting), _WOKEN_MAX)):
            if not self._waiting or not self.has_room:
                return
            _call_first(self._waiting)

    def poison(self, buffer: memoryview) -> None:
        """Overwrite a buffer that must not be read any more."""
        buffer[:] = _POISON * len(buffer)

    def take(self, size: int) -> memoryview:
        """Return a buffer of at least `size` bytes; its content is undefined."""
        free = self._free.get(size)
        if free:
            self.lent_bytes += size
            self.retained_bytes -= size
            return free.pop()
        rounded = rounded_up(size)
        self.lent_bytes += rounded
        free = self._free.get(rounded)
        if free:
            self.retained_bytes -= rounded
            return free.pop()
        if rounded < MAPPED_BYTES_MIN or self._mapped_count >= MAPPED_BUFFERS_MAX:
            return memoryview(bytearray(rounded))
        self._mapped_count += 1
        return memoryview(private_pages(rounded))

    def lend_until(self, done: asyncio.Future[Any], buffer: memoryview) -> None:
        """Count a buffer that is not given back as lent until the future is done.

        It is freed when nothing refers to it.  A large one is referred to until others do not any more, so that it is
        `release` that frees it: the callbacks of the future drop the request.
        """
        size, is_mapped = len(buffer), isinstance(buffer.obj, mmap.mmap)
        held = memoryview(buffer) if is_mapped and size > _RETAINED_SIZE_MAX else None

        def end(_: object) -> None:
            self.lent_bytes -= size
            self._mapped_count -= is_mapped
            if held is not None:
                done.get_loop().call_soon(self._release, held)
            self._wake()

        done.add_done_callback(end)

    def give_back(self, buffer: memoryview) -> None:
        """End the loan.  The buffer, and views of it, must not be read afterwards."""
        size = len(buffer)
        self.lent_bytes -= size
        if self.is_poisoned:
            self.poison(buffer)
        if isinstance(buffer.obj, mmap.mmap):
            if size <= _RETAINED_SIZE_MAX and self.retained_bytes + size <= RETAINED_BUFFER_BYTES_MAX:
                self.retained_bytes += size
                self._free[size].append(buffer)
            else:
                self._mapped_count -= 1
                self._release(buffer)
        if self._waiting or self._growing:
            self._wake()
