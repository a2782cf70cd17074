"""How fast the log cleaners may go: bytes per second, all together, and not at all once the broker stops.

Owner: event loop, except for `spend`, which the cleaners' threads call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kctl.environment import Clock
from kctl.storage.cleaning import CleaningAborted

_CREDIT_MS_MAX = 1_000
"""Time that was not used is not made up for by going faster for longer than this."""
_WAIT_MS_MIN = 10
_BREATH_S = 0.0005
"""How long a thread keeps the interpreter from the loop, as long as it calls `spend` that often."""


class Account:
    """Bytes that are paid for with time."""

    def __init__(self) -> None:
        self._paid_until_ms = 0.0

    def spend(self, byte_count: int, *, now_ms: int, bytes_per_second: float) -> float:
        """Milliseconds to wait until the bytes are paid for; not above zero while there is credit."""
        self._paid_until_ms = max(self._paid_until_ms, now_ms - _CREDIT_MS_MAX)
        self._paid_until_ms += byte_count * 1000 / bytes_per_second
        return self._paid_until_ms - now_ms


class CleanerPace:
    """Holds the threads to `bytes_per_second`, which may change at any time."""

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], float]) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._stopped = threading.Event()
        self._account = Account()
        self._lock = threading.Lock()
        self._of_thread = threading.local()

    def stop(self) -> None:
        """The next batch is the last."""
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
            self._breathe()
        if self._stopped.is_set():
            raise CleaningAborted("the broker stops")

    def _breathe(self) -> None:
        """Lets the loop have the interpreter before the time slice of 5 ms is over."""
        now_s = time.monotonic()
        if now_s - getattr(self._of_thread, "breathed_s", 0.0) >= _BREATH_S:
            time.sleep(0)
            self._of_thread.breathed_s = time.monotonic()
