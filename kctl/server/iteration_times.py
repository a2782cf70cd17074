"""Where the time of an iteration of the event loop went: to its thread, to other threads, to other processes.

A long iteration is a defect of the broker only if its own thread computed or waited for a file.  On a busy machine most
long iterations are those in which the system ran other processes; a thread that reads records holds the interpreter
lock; a garbage collection stops all threads.

Owner: event loop.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from kctl.operating_system import ProcessorWaits


class Reading(NamedTuple):
    """Clocks of one thread and its process, in seconds."""

    thread_s: float
    """CPU time of the thread."""
    process_s: float
    """CPU time of all threads."""
    runnable_s: float
    """How long the thread could have run while the system ran others; 0 where the system does not count that."""


class IterationTimes(NamedTuple):
    """The parts of one iteration, in seconds; garbage collections are also part of one of the others."""

    busy_s: float
    """Its duration."""
    cpu_s: float
    """CPU time of the event loop's thread."""
    runnable_s: float
    """The thread had work, and no processor: other processes, or other threads of this one, ran."""
    blocked_s: float
    """The thread waited for the interpreter lock, a disk or memory."""
    other_threads_s: float
    """CPU time of other threads meanwhile, on whichever processor."""
    collections_s: float
    """Garbage collections, of whichever thread."""

    @property
    def cause(self) -> str:
        """What took the largest part.

        `cpu`, `garbage_collection`, `other_processes` (which had the processors), `other_threads` (which had the
        interpreter lock) or `waiting` (for a disk or memory).
        """
        if self.collections_s >= self.busy_s / 2:
            return "garbage_collection"
        if self.cpu_s >= max(self.runnable_s, self.blocked_s):
            return "cpu"
        if self.runnable_s >= self.blocked_s:
            return "other_processes"
        return "other_threads" if self.other_threads_s >= self.blocked_s / 2 else "waiting"

    def __str__(self) -> str:
        """The log form."""
        return (
            f"cause={self.cause} busy_ms={self.busy_s * 1000:.1f} cpu_ms={self.cpu_s * 1000:.1f} "
            f"without_processor_ms={self.runnable_s * 1000:.1f} blocked_ms={self.blocked_s * 1000:.1f} "
            f"cpu_of_other_threads_ms={self.other_threads_s * 1000:.1f} "
            f"garbage_collection_ms={self.collections_s * 1000:.1f}"
        )


def times_between(before: Reading, after: Reading, *, busy_s: float, collections_s: float) -> IterationTimes:
    """The times of an iteration of `busy_s`; `before` may have been read a little earlier than it began."""
    cpu_s = min(after.thread_s - before.thread_s, busy_s)
    runnable_s = min(after.runnable_s - before.runnable_s, busy_s - cpu_s)
    return IterationTimes(
        busy_s=busy_s,
        cpu_s=cpu_s,
        runnable_s=runnable_s,
        blocked_s=busy_s - cpu_s - runnable_s,
        other_threads_s=max(after.process_s - before.process_s - (after.thread_s - before.thread_s), 0.0),
        collections_s=collections_s,
    )


class ThreadClocks:
    """The clocks of the thread that makes it."""

    def __init__(self) -> None:
        self._waits = ProcessorWaits()

    def read(self) -> Reading:
        """The clocks now; costs four system calls."""
        return Reading(time.thread_time(), time.process_time(), self._waits.seconds())

    def close(self) -> None:
        """Closes what it reads from."""
        self._waits.close()
