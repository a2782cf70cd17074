"""Returns memory that the broker has freed to the system.

The C library keeps freed memory for later use: the end of the heap, and holes between what is still used.  Such pages
are returned by a call that takes 1 ms to 15 ms, in a thread: while the process is larger than after its start, soon
after it has grown or a call was of use, else rarely.

Owner: event loop.
"""

from __future__ import annotations

import asyncio

from kctl.operating_system import heap_trim, resident_bytes

INTERVAL_S = 5.0
GROWTH_BYTES = 8 << 20
"""A process that has grown by less returns nothing."""
USEFUL_BYTES = 4 << 20
"""A call that returns less is of no use."""
PAUSE_MAX = 64
"""The intervals between calls that are of no use."""


class Trims:
    """Decides when free pages are returned; called once in each interval.  Pure."""

    def __init__(self, resident: int) -> None:
        """`resident` is the memory of the process in bytes, after its start."""
        self._first = self._left = resident
        self._pause = 1
        self._intervals = 0

    def is_due(self, resident: int) -> bool:
        """Whether to return pages now."""
        self._intervals += 1
        if resident < self._first + GROWTH_BYTES:
            return False
        return resident >= self._left + GROWTH_BYTES or self._intervals >= self._pause

    def done(self, before: int, left: int) -> None:
        """Pages were returned; the memory of the process before and now."""
        self._left = left
        self._intervals = 0
        self._pause = 1 if before - left >= USEFUL_BYTES else min(2 * self._pause, PAUSE_MAX)


async def return_free_pages(interval_s: float = INTERVAL_S) -> None:
    """Returns free pages until cancelled; returns at once where the system has no such call."""
    trim, resident = heap_trim(), resident_bytes()
    if trim is None or resident is None:
        return
    trims = Trims(resident)
    while True:
        await asyncio.sleep(interval_s)
        before = resident_bytes() or 0
        if trims.is_due(before):
            await asyncio.get_running_loop().run_in_executor(None, trim)
            trims.done(before, resident_bytes() or 0)
