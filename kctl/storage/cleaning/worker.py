"""The process that does the work of a log cleaner, at low priority: `python -m kctl.storage.cleaning.worker`.

Its standard input is a socket of the broker (kctl.storage.cleaning.messages).  It gets paths, offsets and bounds, and
writes `.cleaned` files; the broker decides, and renames them.  It ends with the broker, whatever ends that: a thread
waits for the end of the stream.  So no files are written beside a broker that has been started again.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
import time
from array import array
from typing import Any

from kctl import __version__
from kctl.storage.cleaning.cleaning import Cleaning, CleaningTask, NotedKeys, ProducerBatch
from kctl.storage.cleaning.messages import DONE, FAILED, RATE, READY, TASK, describe_error, frame_of, read_message
from kctl.storage.cleaning.pace import WAIT_MS_MIN, Account
from kctl.storage.files import ConfinedFiles, RealFiles
from kctl.system.operating_system import lower_priority

NICENESS = 10
_OUT_OF_MEMORY_SCORE = 500
_YIELD_EVERY_NS = 200_000
"""A scheduler does not always interrupt a process for one of higher priority, and its slice is several milliseconds."""


class WorkerPace:
    """Limits the rate to the share of this process, which the broker changes."""

    def __init__(self) -> None:
        self.bytes_per_second = float("inf")
        self._account = Account()
        self._yielded_ns = 0

    def spend(self, byte_count: int) -> None:
        """Wait until the bytes may have been read or written, and let others have the processor."""
        now_ns = time.monotonic_ns()
        wait_ms = self._account.spend(byte_count, now_ms=now_ns // 1_000_000, bytes_per_second=self.bytes_per_second)
        if wait_ms >= WAIT_MS_MIN:
            time.sleep(wait_ms / 1000)
        elif now_ns - self._yielded_ns >= _YIELD_EVERY_NS:
            os.sched_yield()
            self._yielded_ns = time.monotonic_ns()


class Worker:
    """Answers the messages of the broker, one after the other."""

    def __init__(self) -> None:
        self.pace = WorkerPace()
        self._cleaning: Cleaning | None = None

    def answer(self, kind: str, *values: Any) -> tuple[Any, ...]:
        """Return the response to a message."""
        try:
            if kind == TASK:
                return DONE, self._note_keys(*values)
            assert self._cleaning is not None, "a task comes first"
            return DONE, self._cleaning.write(*values)
        except Exception as error:
            return FAILED, *describe_error(error)

    def _note_keys(self, task: CleaningTask, producers: array[int]) -> NotedKeys:
        self._cleaning = None  # Frees the keys of the log before.
        files = ConfinedFiles(RealFiles(), [task.directory])
        self._cleaning = Cleaning(task, files=files, pace=self.pace)
        fields = iter(producers)
        return self._cleaning.note_keys_beside(map(ProducerBatch, fields, fields, fields))


def main() -> None:
    """Serve the broker until it ends."""
    for number in (signal.SIGINT, signal.SIGTERM):  # Those are for the broker, which ends this process.
        signal.signal(number, signal.SIG_IGN)
    lower_priority(NICENESS, _OUT_OF_MEMORY_SCORE)
    broker = socket.socket(fileno=sys.stdin.fileno())
    worker = Worker()
    messages: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(broker, worker.pace, messages), daemon=True).start()
    with contextlib.suppress(OSError):  # The broker has ended.
        broker.sendall(frame_of((READY, __version__)))
        while True:
            broker.sendall(frame_of(worker.answer(*messages.get())))


def _receive(broker: socket.socket, pace: WorkerPace, messages: queue.SimpleQueue[tuple[Any, ...]]) -> None:
    """Put the messages into the queue; end the process at the end of the stream."""
    try:
        while (message := read_message(broker.recv)) is not None:
            if message[0] == RATE:
                pace.bytes_per_second = message[1]
            else:
                messages.put(message)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
