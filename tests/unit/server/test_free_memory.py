"""Free pages of the heap are returned to the system, soon while that is of use and rarely while it is not."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

from kctl.server.loop.memory import GROWTH_BYTES, PAUSE_MAX, USEFUL_BYTES, Trims

START = 50 << 20


def due_intervals(trims: Trims, resident: int, *, returned: int, intervals: int) -> list[int]:
    """The intervals in which pages are returned; each call returns so many bytes, which are used again at once."""
    due = []
    for number in range(1, intervals + 1):
        if trims.is_due(resident):
            due.append(number)
            trims.done(resident, resident - returned)
    return due


def test_a_process_as_large_as_after_its_start_returns_nothing() -> None:
    assert due_intervals(Trims(START), START + GROWTH_BYTES - 1, returned=0, intervals=1000) == []


def test_pages_are_returned_in_each_interval_while_that_is_of_use() -> None:
    larger = START + GROWTH_BYTES
    assert due_intervals(Trims(START), larger, returned=USEFUL_BYTES, intervals=5) == [1, 2, 3, 4, 5]


def test_calls_without_use_become_rare() -> None:
    due = due_intervals(Trims(START), START + GROWTH_BYTES, returned=0, intervals=10 * PAUSE_MAX)
    assert due[:5] == [1, 3, 7, 15, 31]
    assert {later - earlier for earlier, later in pairwise(due[7:])} == {PAUSE_MAX}


def test_growth_ends_a_long_pause() -> None:
    trims = Trims(START)
    due_intervals(trims, START + GROWTH_BYTES, returned=0, intervals=10 * PAUSE_MAX)
    assert trims.is_due(START + 2 * GROWTH_BYTES)


def test_memory_of_a_thread_is_returned() -> None:
    program = """
import asyncio
import threading
from kctl.system.operating_system import resident_bytes
from kctl.server.loop.memory import return_free_pages

BLOCKS, SIZE = 2_000, 60_000  # 120 MB in blocks that the C library does not map one by one.
kept = []

def use_memory():
    blocks = [(b"x" * SIZE, b"x" * 600) for _ in range(BLOCKS)]
    kept.extend(small for _, small in blocks)

async def main():
    start = resident_bytes()
    returning = asyncio.create_task(return_free_pages(0.01))
    await asyncio.sleep(0)
    thread = threading.Thread(target=use_memory)
    thread.start()
    thread.join()
    held = resident_bytes()
    assert held > start + BLOCKS * SIZE // 2, held - start
    while resident_bytes() > start + BLOCKS * SIZE // 2:
        await asyncio.sleep(0.01)
    returning.cancel()

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_system_without_such_a_call_is_left_alone() -> None:
    program = """
import asyncio
from kctl.server.loop import memory as free_memory
free_memory.heap_trim = lambda: None
asyncio.run(asyncio.wait_for(free_memory.return_free_pages(), 10))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
