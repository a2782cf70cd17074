"""How fast the log cleaner may go: bytes per second, one batch at a time, and not at all once the broker stops.

Owner: event loop, except for `spend`, which the cleaner's thread calls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kctl.environment import Clock
from kctl.storage.cleaner import CleaningGivenUp

_CREDIT_MS_MAX = 1_000
"""Time that was not used is not made up for by going faster for longer than this."""
_WAIT_MS_MIN = 10


class CleanerPace:
    """Holds the thread to `bytes_per_second`, which may change at any time."""

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], float]) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._stopped = threading.Event()
        self._paid_until_ms = 0.0

    def stop(self) -> None:
        """The next batch is the last."""
        self._stopped.set()

    def spend(self, byte_count: int) -> None:
        """Waits until the bytes may have been read or written.  Raises CleaningGivenUp after `stop`."""
        if self._stopped.is_set():
            raise CleaningGivenUp("the broker stops")
        now_ms = self._clock.monotonic_ms()
        self._paid_until_ms = max(self._paid_until_ms, now_ms - _CREDIT_MS_MAX)
        self._paid_until_ms += byte_count * 1000 / self._bytes_per_second()
        ahead_ms = self._paid_until_ms - now_ms
        if ahead_ms >= _WAIT_MS_MIN:
            self._stopped.wait(ahead_ms / 1000)
        else:
            time.sleep(0)  # Lets the loop have the interpreter now, not when the time slice of 5 ms is over.
