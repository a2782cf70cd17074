"""Limits a rate of bytes.  Pure: callers pass the time and wait."""

from __future__ import annotations


class Pacer:
    """Spreads bytes over time: at most `bytes_per_s` on average from the start, without saving up unused time."""

    def __init__(self, bytes_per_s: int, now_ms: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_ms = float(now_ms)
        """When the bytes so far have been paid for."""

    def delay_ms(self, size: int, now_ms: int) -> int:
        """How long to wait after sending `size` bytes."""
        self._free_ms = max(self._free_ms, now_ms) + size * 1000 / self._bytes_per_s
        return max(0, int(self._free_ms - now_ms))  # rounded down: the rest is paid with the next bytes
