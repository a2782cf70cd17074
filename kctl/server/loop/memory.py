"""Keeps garbage collections short, and returns freed memory to the system."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from kctl.server.loop.tasks import in_thread
from kctl.system.operating_system import heap_trim, resident_bytes

# Schedules garbage collections, so that none stops the event loop for tens of milliseconds.
#
# Reference counting frees almost everything; the collector frees cycles only. A collection visits the objects that
# have been created since the one before. Python begins one when the difference between created and freed objects
# reaches a threshold, whatever the age of those that are freed: while new requests replace earlier ones, that takes
# hundreds of thousands of objects. So young objects are collected between iterations of the event loop too, after a
# short time.
#
# A collection of the oldest objects visits all of them, about 50 objects per partition. Those that have survived two
# collections are therefore visited once more by a thorough collection, if they are few, and then frozen: excluded from
# later collections. It is rare and waits for an idle loop, except when there are many more objects than before, or much
# more memory: a buffer is one object of any size. Closed objects leave no cycles (kctl/system/reference_cycles.py), so
# that frozen objects need a collection only if memory grows as it does with a leak: then all are visited, which stops
# the loop. docs/decisions/garbage-collection.md has the measurements.
#
# Owner: event loop.


YOUNG_OBJECTS = 3_000
"""The number of created objects, less those that were freed, after which Python collects the young ones.  That takes at
most about 3 ms.  A collection of the middle generation visits three times as many: with 10,000 they took up to 30 ms
while thousands of logs were created.
"""
YOUNG_INTERVAL_S = 0.005
"""The time between collections of young objects while the loop is busy.  One without objects takes about 1 us."""
RECENT_OBJECTS_MAX = 30_000
"""A thorough collection visits at most so many objects since the last one, which takes at most about 15 ms.  More are
those of a start or of many new partitions, which live long: they are frozen without a collection.
"""
_MIDDLE_COLLECTIONS = 2
_NEVER = 1 << 30
CHECK_INTERVAL_S = 5.0
INTERVAL_MIN_S = 6 * 3600.0
INTERVAL_MAX_S = 48 * 3600.0
GROWTH_IDLE = 500_000
"""Blocks of memory (one or two for each object, of 64 bytes on average) since the last thorough collection, after which
an idle loop collects the recent ones.
"""
GROWTH_MAX = 16 * GROWTH_IDLE
"""The same for a busy loop; and for a collection of all objects, which needs twice as many as after the last one."""
GROWTH_BYTES_IDLE = 64 << 20
"""Bytes by which the process has grown since the last thorough collection, after which an idle loop collects."""
GROWTH_BYTES_MAX = 8 * GROWTH_BYTES_IDLE
"""The same for a busy loop."""
BYTES_INTERVAL_S = 60.0
"""Collections because of bytes are so far apart at least: the memory may be in use."""
IDLE_SHARE = 0.05
"""The share of time that an idle loop is busy."""


class Memory(NamedTuple):
    """The memory of the process."""

    blocks: int
    """Blocks of Python's allocator, which has objects of at most 512 bytes."""
    resident: int
    """Bytes in main memory, which include buffers; 0 where the system does not tell them."""


class Due(Enum):
    """What a thorough collection visits."""

    NOTHING = "nothing"
    RECENT = "recent"
    """The objects since the last one."""
    ALL = "all"
    """Also those that were frozen."""


class ThoroughCollections:
    """Decides when a thorough collection is due.  Pure."""

    def __init__(self, now_s: float, busy_s: float, memory: Memory) -> None:
        """`memory` is that after the collection at the start."""
        self._last_s = now_s
        self._checked_s = now_s
        self._busy_s = busy_s
        self._memory = memory
        self._of_all = memory
        """The memory after the last collection of all objects."""

    def due(self, now_s: float, busy_s: float, memory: Memory) -> Due:
        """Return what to collect now; `busy_s` is how long the loop has been busy since its start."""
        elapsed_s, busy_now_s = now_s - self._checked_s, busy_s - self._busy_s
        self._checked_s, self._busy_s = now_s, busy_s
        is_idle = busy_now_s <= elapsed_s * IDLE_SHARE
        since_s, blocks = now_s - self._last_s, memory.blocks - self._memory.blocks
        grown = memory.resident - self._memory.resident if since_s >= BYTES_INTERVAL_S else 0
        if is_idle:
            is_due = since_s >= INTERVAL_MIN_S or blocks >= GROWTH_IDLE or grown >= GROWTH_BYTES_IDLE
        else:
            is_due = since_s >= INTERVAL_MAX_S or blocks >= GROWTH_MAX or grown >= GROWTH_BYTES_MAX
        if not is_due:
            return Due.NOTHING
        before, times = self._of_all, 1 if is_idle else 2
        is_leak = memory.blocks - before.blocks >= times * max(GROWTH_MAX, before.blocks) or (
            memory.resident - before.resident >= times * max(GROWTH_BYTES_MAX, before.resident)
        )
        return Due.ALL if is_leak else Due.RECENT

    def collected(self, now_s: float, memory: Memory, due: Due) -> None:
        """After a thorough collection: what is still there is in use."""
        self._last_s, self._memory = now_s, memory
        if due is Due.ALL:
            self._of_all = memory


def freeze() -> None:
    """Free cycles, exclude all objects that exist from later collections, and set the thresholds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, _MIDDLE_COLLECTIONS, _NEVER)


def freeze_recent() -> None:
    """Free cycles of the objects since the last call, if they are few, and exclude these objects from now on."""
    if len(gc.get_objects(generation=2)) <= RECENT_OBJECTS_MAX:
        gc.collect()
    gc.freeze()


def collect_young() -> None:
    """Collect the objects since the last collection; those of the last collections too when it is their turn."""
    gc.collect(1 if gc.get_count()[1] > _MIDDLE_COLLECTIONS else 0)


def _memory() -> Memory:
    return Memory(sys.getallocatedblocks(), resident_bytes() or 0)


async def collect(busy_s: Callable[[], float], collected: Callable[[float, float, int], None]) -> None:
    """Run thorough collections until cancelled.

    `busy_s` returns how long the loop has been busy since its start.  `collected` is called, in whichever thread, after
    each collection with its end, duration and generation.
    """
    loop = asyncio.get_running_loop()
    started_s = 0.0

    def on_collection(phase: str, info: dict[str, Any]) -> None:
        nonlocal started_s
        now_s = loop.time()
        if phase == "start":
            started_s = now_s
            return
        collected(now_s, now_s - started_s, info["generation"])

    thorough = ThoroughCollections(loop.time(), busy_s(), _memory())
    gc.callbacks.append(on_collection)
    try:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            due = thorough.due(loop.time(), busy_s(), _memory())
            if due is Due.ALL:
                gc.unfreeze()
                freeze()
            elif due is Due.RECENT:
                freeze_recent()
            if due is not Due.NOTHING:
                thorough.collected(loop.time(), _memory(), due)
    finally:
        gc.callbacks.remove(on_collection)


# Returns memory that the broker has freed to the system.
#
# The C library keeps freed memory for later use: the end of the heap, and holes between what is still used. Such
# pages are returned by a call that takes 1 ms to 15 ms, in a thread: while the process is larger than after its
# start, soon after it has grown or a call was of use, else rarely.
#
# Owner: event loop.


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
        """Return whether to return pages now."""
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
    """Return free pages until cancelled; return at once where the system has no such call."""
    trim, resident = heap_trim(), resident_bytes()
    if trim is None or resident is None:
        return
    trims = Trims(resident)
    while True:
        await asyncio.sleep(interval_s)
        before = resident_bytes() or 0
        if trims.is_due(before):
            await in_thread(trim)
            trims.done(before, resident_bytes() or 0)
