"""The requests of one connection, without its socket: frames in, one request at a time, responses out in order.

As in Kafka, a connection is muted from the moment a request is taken until its response has been queued: the next frame
waits even if it has arrived.  Responses are therefore in request order.  The connection of a client that exceeds a
quota stays muted for the throttle time after that (KIP-219).

The owner moves bytes between the pump and the network, and calls `turn` when bytes have arrived, when `on_wake` reports
that a response is ready, and when responses have been sent.  A turn ends after a bounded number of requests and
bytes and a bounded time, so that one connection with many pipelined requests does not delay the others.  The network
of the simulator runs the same pump.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from kctl.limits import TURN_MS_MAX, TURN_REQUEST_BYTES_MAX, TURN_REQUESTS_MAX, TURN_RESPONSE_BYTES_MAX
from kctl.server.network.channel import Channel, ChannelEnded, KeepsFrame, Reply, ThrottledReply
from kctl.server.network.inbox import Inbox
from kctl.server.network.outbox import Chunk

_TURN_S = TURN_MS_MAX / 1000


class TurnEnd(Enum):
    """Why a turn ended."""

    NEEDS_BYTES = "needs bytes"
    """No whole frame has arrived."""
    WAITS = "waits"
    """A request waits for its response, or the connection is muted; `on_wake` will be called."""
    HAS_MORE = "has more"
    """The budget of the turn is used up; more frames may have arrived."""


class RequestPump:
    """See the module's docstring.  `put` queues the chunks of a response and returns their size in bytes."""

    __slots__ = (
        "_channel",
        "_error",
        "_inbox",
        "_is_closed",
        "_loop",
        "_mute",
        "_now_s",
        "_on_wake",
        "_pending",
        "_put",
    )

    def __init__(
        self,
        inbox: Inbox,
        channel: Channel,
        *,
        loop: asyncio.AbstractEventLoop,
        put: Callable[[list[Chunk]], int],
        on_wake: Callable[[], None],
    ) -> None:
        self._inbox = inbox
        self._channel = channel
        self._loop = loop
        self._now_s = loop.time
        self._put = put
        self._on_wake = on_wake
        self._pending: asyncio.Future[Reply] | None = None
        self._mute: asyncio.TimerHandle | None = None
        self._error: BaseException | None = None
        self._is_closed = False

    @property
    def is_waiting(self) -> bool:
        """Whether a request waits for its response, or the connection is muted."""
        return self._pending is not None or self._mute is not None

    @property
    def is_muted(self) -> bool:
        """Whether no request is taken because of a quota."""
        return self._mute is not None

    def turn(self) -> TurnEnd:
        """Handles frames until the budget is used up, a request has to wait, or more bytes are needed.

        Raises MalformedRequest, UnansweredRequestFailed and ChannelEnded, also for a request that has waited, and any
        exception of a handler; the owner must then send the queued responses and close the connection.
        """
        if self._error is not None:
            self._raise_error()
        if self._pending is not None or self._mute is not None:
            return TurnEnd.WAITS
        inbox, channel = self._inbox, self._channel
        end_s = 0.0
        request_bytes = response_bytes = 0
        for count in range(TURN_REQUESTS_MAX):
            if request_bytes >= TURN_REQUEST_BYTES_MAX or response_bytes >= TURN_RESPONSE_BYTES_MAX:
                break
            if count == 1:
                end_s = self._now_s() + _TURN_S
            elif count and self._now_s() >= end_s:
                break
            inbox.frame_bytes_max = channel.frame_bytes_max
            frame = inbox.next_frame()
            if frame is None:
                return TurnEnd.NEEDS_BYTES
            request_bytes += len(frame)
            reply = channel.handle(frame)
            if isinstance(reply, asyncio.Future):
                self._pending = reply
                if isinstance(reply, KeepsFrame):
                    inbox.keep_frame(reply)
                reply.add_done_callback(self._on_reply)
                return TurnEnd.WAITS
            if reply is None:
                continue
            if isinstance(reply, ThrottledReply):
                self._put_and_mute(reply)
                return TurnEnd.WAITS
            response_bytes += self._put(reply)
        return TurnEnd.HAS_MORE

    def close(self) -> None:
        """Cancels a waiting request and releases the memory of received bytes.  `on_wake` is not called any more.

        A request that is being processed is completed, so that no topic is created in part.
        """
        if self._is_closed:
            return
        self._is_closed = True
        # Removes the reference cycle with the owner, so that both are freed at once, without the garbage collector.
        self._on_wake = _ignore
        self._inbox.close()
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.remove_done_callback(self._on_reply)
            pending.cancel()
        if self._mute is not None:
            self._mute.cancel()

    def _put_and_mute(self, reply: ThrottledReply) -> None:
        if reply.chunks is not None:
            self._put(reply.chunks)
        self._mute = self._loop.call_later(reply.mute_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._mute = None
        self._on_wake()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        assert error is not None
        try:
            raise error
        finally:
            # The traceback refers to this frame: without this, both would wait for the garbage collector.
            del error

    def _on_reply(self, future: asyncio.Future[Reply]) -> None:
        self._pending = None
        if future.cancelled():
            self._error = asyncio.CancelledError("the request was cancelled")
        elif (error := future.exception()) is not None:
            self._error = error
            if isinstance(error, ChannelEnded) and error.last is not None:
                self._put(error.last)
        elif isinstance(reply := future.result(), ThrottledReply):
            self._put_and_mute(reply)
        elif reply is not None:
            self._put(reply)
        self._on_wake()


def _ignore() -> None:
    """Replaces `on_wake` in a closed pump."""
