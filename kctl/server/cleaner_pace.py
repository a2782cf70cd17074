"""Rate limit of the log cleaners: bytes per second for all of them together; stops them when the broker stops.

Owner: event loop, except for `spend`, which the cleaners' threads call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kctl.environment import Clock
from kctl.storage.cleaning import CleaningAborted

_CREDIT_MS_MAX = 1_000
"""The most unused time that may be caught up by going faster than the limit."""
_WAIT_MS_MIN = 10
_YIELD_EVERY_S = 0.0005
"""How long a thread may hold the interpreter lock, if it calls `spend` that often."""


class Account:
    """Converts bytes into waiting time."""

    def __init__(self) -> None:
        self._paid_until_ms = 0.0

    def spend(self, byte_count: int, *, now_ms: int, bytes_per_second: float) -> float:
        """Milliseconds to wait for these bytes; zero or negative while there is unused time."""
        self._paid_until_ms = max(self._paid_until_ms, now_ms - _CREDIT_MS_MAX)
        self._paid_until_ms += byte_count * 1000 / bytes_per_second
        return self._paid_until_ms - now_ms


class CleanerPace:
    """Limits the threads to `bytes_per_second`, which may change at any time."""

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], float]) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._stopped = threading.Event()
        self._account = Account()
        self._lock = threading.Lock()
        self._of_thread = threading.local()

    def stop(self) -> None:
        """Stops the threads after their current batch."""
        self._stopped.set()

    def spend(self, byte_count: int) -> None:
        """Waits until the bytes may have been read or written.  Raises CleaningAborted after `stop`."""
        with self._lock:
            wait_ms = self._account.spend(
                byte_count, now_ms=self._clock.monotonic_ms(), bytes_per_second=self._bytes_per_second()
            )
        if wait_ms >= _WAIT_MS_MIN:
            self._stopped.wait(wait_ms / 1000)
        else:
            self._yield_interpreter()
        if self._stopped.is_set():
            raise CleaningAborted("the broker is stopping")

    def _yield_interpreter(self) -> None:
        """Releases the interpreter lock to the event loop before the switch interval is over."""
        now_s = time.monotonic()
        if now_s - getattr(self._of_thread, "yielded_s", 0.0) >= _YIELD_EVERY_S:
            time.sleep(0)
            self._of_thread.yielded_s = time.monotonic()
