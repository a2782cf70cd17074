"""asyncio transport for one end of a simulated connection.

Closing sends the buffered bytes and then EOF, which the peer receives after all bytes.  Aborting, or writing to a
closed end, resets the connection: bytes in flight are lost and the peer gets ConnectionResetError.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast

from kctl.testing.sim_link import LinkConditions, Pipe, Segment, Signal

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Address = tuple[str, int]
_HIGH_WATER_BYTES = 65_536


class SimTransport(asyncio.Transport):
    """Created in pairs by SimNetwork; `link` has the two hosts, `address` is this end, `peer_address` the other."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        conditions: LinkConditions,
        *,
        address: Address,
        peer_address: Address,
        on_event: Callable[[SimTransport, Segment], None],
        on_gone: Callable[[SimTransport], None],
    ) -> None:
        super().__init__({"sockname": address, "peername": peer_address})
        self.address = address
        self.peer_address = peer_address
        self._loop = loop
        self._on_event = on_event
        self._on_gone = on_gone
        self._peer: SimTransport | None = None
        self._protocol: asyncio.BaseProtocol | None = None
        self._limits = (_HIGH_WATER_BYTES // 4, _HIGH_WATER_BYTES)
        self._is_writing_paused = False
        self._is_reading = True
        self._is_closing = False
        self._is_gone = False
        self._has_sent_eof = False
        self._has_sent_reset = False
        self._context = contextvars.copy_context()
        self.outgoing = Pipe(
            loop,
            random,
            conditions,
            deliver=self._deliver,
            on_progress=self._progressed,
            on_retransmission_timeout=self._on_retransmission_timeout,
        )

    def attach(self, peer: SimTransport) -> None:
        """Set the other end."""
        self._peer = peer

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        """Connect the protocol, whose callbacks run in the context of this call."""
        self._protocol = protocol
        self._context = contextvars.copy_context()
        self._call(protocol.connection_made, self)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send the bytes; call pause_writing of the protocol above the high-water mark.  Ignored after the end."""
        if self._is_gone or self._has_sent_eof or not len(data):
            return
        self.outgoing.send(bytes(data))
        if self.outgoing.byte_count > self._limits[1] and not self._is_writing_paused:
            self._is_writing_paused = True
            self._call(self._callbacks.pause_writing)

    def write_eof(self) -> None:
        """Send FIN; the other end may continue to send."""
        if not self._has_sent_eof and not self._is_gone:
            self._has_sent_eof = True
            self.outgoing.send(Signal.FIN)

    def can_write_eof(self) -> bool:
        """Return True, as for TCP."""
        return True

    def close(self) -> None:
        """Send FIN after the buffered data, and call connection_lost soon."""
        if self._is_closing:
            return
        self._is_closing = True
        self.write_eof()
        self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Close at once without an error, and reset the other end."""
        self.reset(None)

    def reset(self, error: OSError | None) -> None:
        """Close this end at once with an error, and reset the other end."""
        if self._is_gone:
            return
        self._is_closing = True
        self.outgoing.reset()
        self._loop.call_soon(self._lose, error)

    def process_killed(self) -> None:
        """Handle the kill of this end's process: no callbacks here, and a reset of the other end."""
        if not self._is_gone:
            self._is_closing = self._is_gone = True
            self.outgoing.reset()
            if self._peer is not None:
                self._peer.outgoing.release()

    def finish_killed(self) -> None:
        """Call connection_lost of a killed process at the end of the run, so that its tasks can end."""
        self._call(self._callbacks.connection_lost, None)

    def is_closing(self) -> bool:
        """Return True after `close`, `abort` or a lost connection."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Return False between `pause_reading` and `resume_reading`."""
        return self._is_reading

    def pause_reading(self) -> None:
        """Delay the bytes that the other end sends, so that its buffer fills."""
        self._is_reading = False
        if self._peer is not None:
            self._peer.outgoing.hold()

    def resume_reading(self) -> None:
        """Delivers the delayed bytes."""
        self._is_reading = True
        if self._peer is not None:
            self._peer.outgoing.release()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol whose callbacks are called."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol whose callbacks are called."""
        assert self._protocol is not None
        return self._protocol

    def get_write_buffer_size(self) -> int:
        """Return the bytes sent and not delivered yet."""
        return self.outgoing.byte_count

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return (low, high) water mark in bytes."""
        return self._limits

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the water marks in bytes; a missing one is derived from the other, as asyncio does."""
        high = high if high is not None else (4 * low if low is not None else _HIGH_WATER_BYTES)
        self._limits = (low if low is not None else high // 4, high)

    @property
    def _callbacks(self) -> asyncio.Protocol:
        return cast("asyncio.Protocol", self._protocol)

    def _call(self, callback: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """Run a callback in a copy of the context: callbacks may nest, and a context cannot be entered twice."""
        return self._context.copy().run(callback, *args)

    def _deliver(self, segment: Segment) -> None:
        assert self._peer is not None
        self._on_event(self, segment)
        self._peer.take(segment)

    def take(self, segment: Segment) -> None:
        """Handle bytes or a signal from the other end."""
        if segment is Signal.RST:
            was_closing, self._is_closing = self._is_closing, True
            self.outgoing.close()
            self._lose(None if was_closing else ConnectionResetError("connection reset by peer"))
        elif self._is_gone or self._is_closing:
            self._refuse(segment)
        elif isinstance(segment, bytes):
            self._call(self._feed, segment)
        elif not self._call(self._callbacks.eof_received):
            self.close()

    def _feed(self, data: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            self._callbacks.data_received(data)
            return
        left = memoryview(data)
        while left:
            buffer = memoryview(protocol.get_buffer(len(left)))
            size = min(len(buffer), len(left))
            buffer[:size] = left[:size]
            protocol.buffer_updated(size)
            left = left[size:]

    def _refuse(self, segment: Segment) -> None:
        """Send a reset after the bytes sent before, as a kernel for a closed socket."""
        if isinstance(segment, bytes) and not self._has_sent_reset:
            self._has_sent_reset = True
            self.outgoing.send(Signal.RST)

    def _lose(self, error: OSError | None) -> None:
        if self._is_gone:
            return
        self._is_gone = True
        if self._peer is not None:
            self._peer.outgoing.release()
        self._call(self._callbacks.connection_lost, error)
        self._progressed()

    def _progressed(self) -> None:
        if self._is_gone:
            if self.outgoing.is_empty:
                self._on_gone(self)
        elif self._is_writing_paused and self.outgoing.byte_count <= self._limits[0]:
            self._is_writing_paused = False
            self._call(self._callbacks.resume_writing)

    def _on_retransmission_timeout(self) -> None:
        self.outgoing.close()
        self._is_closing = True
        self._lose(TimeoutError("the other end has not responded for 15 minutes"))
