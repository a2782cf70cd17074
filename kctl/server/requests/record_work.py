"""Long work on records: decompressing, converting, compressing, searching.

It runs in a few threads, within one byte limit for all requests; work that does not fit waits in order of arrival.
The function given to `run` works on values only: it must not access what the event loop owns.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from kctl.errors import ApiError, ErrorCode
from kctl.limits import RECORD_WORK_BYTES_MAX, RECORD_WORK_WAITING_BYTES_MAX, Subject, bound

RECORD_WORK_THREADS = bound(
    Subject.RECORDS,
    "threads that decompress, convert and compress records",
    2,
    "threads",
    on_excess="the request waits until others have finished",
)
"""More would compete with the event loop for the interpreter lock."""


T = TypeVar("T")


class RecordWork:
    """The threads and the byte limit that all requests share."""

    def __init__(
        self,
        *,
        threads: int = RECORD_WORK_THREADS,
        thread_pool: Callable[[int, str], ThreadPoolExecutor] = ThreadPoolExecutor,
        bytes_max: int = RECORD_WORK_BYTES_MAX,
        waiting_bytes_max: int = RECORD_WORK_WAITING_BYTES_MAX,
    ) -> None:
        self._threads = thread_pool(threads, "record-work")
        self._bytes_max = bytes_max
        self._free_bytes = bytes_max
        self._waiting_bytes_max = waiting_bytes_max
        self._held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._running: set[asyncio.Future[Any]] = set()
        self._is_closed = False

    @property
    def used_bytes(self) -> int:
        """Bytes reserved by running work."""
        return self._bytes_max - self._free_bytes

    def hold(self, size: int) -> None:
        """Count `size` bytes that a request holds while it waits; `release_hold` ends that.

        Raises ApiError: REQUEST_TIMED_OUT if all requests together would hold too many bytes, MESSAGE_TOO_LARGE if this
        one alone would.
        """
        if size > self._waiting_bytes_max:
            message = f"the batch of {size} bytes is larger than this broker's limit of {self._waiting_bytes_max} bytes"
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, message)
        if self._held_bytes + size > self._waiting_bytes_max:
            message = f"more than {self._waiting_bytes_max} bytes of records wait to be processed in threads"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, message)
        self._held_bytes += size

    def release_hold(self, size: int) -> None:
        """End `hold` for `size` bytes."""
        self._held_bytes -= size

    async def run(self, memory_bytes: int, work: Callable[[], T]) -> T:
        """Run `work`, which uses at most `memory_bytes`, in a thread and return its result.

        Work that needs more than the limit runs alone.  Raises what `work` raises, and ApiError(NOT_LEADER_OR_FOLLOWER)
        after `close`.
        """
        memory_bytes = min(memory_bytes, self._bytes_max)
        await self._reserve(memory_bytes)
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        self._running.add(running)

        def finished(future: asyncio.Future[T]) -> None:
            self._running.discard(future)
            self._release(memory_bytes)
            if not future.cancelled():
                future.exception()  # Marks it as retrieved: the caller may be gone.

        running.add_done_callback(finished)
        # Shielded: a thread continues when its request is cancelled, and keeps its bytes until it is done.
        try:
            result = await asyncio.shield(running)
        finally:
            # An exception refers to this frame: with the future in it, both and all bytes of the work would stay in
            # memory until the next garbage collection.
            del running
        self._check_open()
        return result

    async def close(self) -> None:
        """Refuse waiting work, and wait for running work.  Work gets no result after this."""
        self._is_closed = True
        for _, turn in self._waiting:
            if not turn.done():
                turn.set_result(None)
        if self._running:
            await asyncio.wait(self._running)
        self._threads.shutdown(wait=False)

    async def _reserve(self, memory_bytes: int) -> None:
        self._check_open()
        if not self._waiting and memory_bytes <= self._free_bytes:
            self._free_bytes -= memory_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (memory_bytes, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                if entry in self._waiting:
                    self._waiting.remove(entry)
                self._wake()
            else:
                self._release(memory_bytes)
            raise
        self._check_open()

    def _release(self, memory_bytes: int) -> None:
        self._free_bytes += memory_bytes
        self._wake()

    def _wake(self) -> None:
        while self._waiting and not self._is_closed and self._waiting[0][0] <= self._free_bytes:
            memory_bytes, turn = self._waiting.popleft()
            if turn.cancelled():
                continue
            self._free_bytes -= memory_bytes
            turn.set_result(None)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down")
