"""Transports whose pauses take no real time but count toward deadlines.

A deadline passes after the same number of attempts on every machine.
"""

from __future__ import annotations

import asyncio

from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.blocking_transport import BlockingTransport


class NoPauseBlockingTransport(BlockingTransport):
    """A blocking transport; only pauses take (virtual) time."""

    def __init__(self) -> None:
        self._paused_ms = 0

    async def sleep(self, duration_ms: int) -> None:
        self._paused_ms += duration_ms

    def monotonic_ms(self) -> int:
        return self._paused_ms


class NoPauseAsyncioTransport(AsyncioTransport):
    """An AsyncioTransport whose pauses take no real time."""

    def __init__(self) -> None:
        self._paused_ms = 0

    async def sleep(self, duration_ms: int) -> None:
        self._paused_ms += duration_ms
        await asyncio.sleep(0)

    def monotonic_ms(self) -> int:
        return self._paused_ms
