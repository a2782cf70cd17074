"""Trace of a simulated run; two runs are equal if their digests are."""

from __future__ import annotations

import hashlib
from collections import deque

_LATEST_KEPT = 200


class SimTrace:
    """Counts and hashes all events, and keeps the last ones for error messages."""

    def __init__(self) -> None:
        self.count = 0
        self.latest: deque[str] = deque(maxlen=_LATEST_KEPT)
        self._hash = hashlib.sha256()

    def record(self, time_s: float, event: str) -> None:
        """Records an event at this virtual time."""
        line = f"{time_s:.9f} {event}"
        self.count += 1
        self.latest.append(line)
        self._hash.update(line.encode() + b"\n")

    def digest(self) -> str:
        """Hexadecimal SHA-256 over all events so far."""
        return self._hash.hexdigest()
