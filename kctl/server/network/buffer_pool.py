"""Receive buffers that all connections of a broker share.

A connection holds a buffer only while it has unprocessed bytes, so an idle connection costs no buffer, and the few
buffers in use stay in the processor's cache.  Sizes are powers of two.  Large buffers are anonymous memory maps:
page-aligned, which the kernel fills several times faster than a bytearray on some processors.

Owner: event loop.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable

from kctl.limits import MAPPED_BUFFERS_MAX, RETAINED_BUFFER_BYTES_MAX

MAPPED_BYTES_MIN = 1 << 16
_RETAINED_SIZE_MAX = 1 << 23
"""Larger buffers go back to the system as soon as their frame has been handled."""
_POISON = b"\xdd"


def rounded_up(size: int) -> int:
    """The next power of two."""
    return 1 << max(size - 1, 1).bit_length()


class BufferPool:
    """Lends writable buffers.  With `is_poisoned`, returned ones are overwritten, so that tests find late readers."""

    def __init__(
        self, *, is_poisoned: bool = False, release: Callable[[memoryview], object] = memoryview.release
    ) -> None:
        """`release` returns a large buffer to the system, which takes some milliseconds for 100 MB."""
        self._free: dict[int, list[memoryview]] = {}
        self._is_poisoned = is_poisoned
        self._release = release
        self._mapped_count = 0
        self.retained_bytes = 0
        """Total size of the unused buffers."""
        self.lent_bytes = 0
        """Total size of the buffers that connections hold now."""

    def take(self, size: int) -> memoryview:
        """A buffer of at least `size` bytes; its content is undefined."""
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
        return memoryview(mmap.mmap(-1, rounded))

    def give_back(self, buffer: memoryview) -> None:
        """Ends the loan.  Nobody may read the buffer, or a view of it, afterwards."""
        size = len(buffer)
        self.lent_bytes -= size
        if self._is_poisoned:
            buffer[:] = _POISON * size
        if not isinstance(buffer.obj, mmap.mmap):
            return
        if size <= _RETAINED_SIZE_MAX and self.retained_bytes + size <= RETAINED_BUFFER_BYTES_MAX:
            self.retained_bytes += size
            self._free.setdefault(size, []).append(buffer)
        else:
            self._mapped_count -= 1
            self._release(buffer)
