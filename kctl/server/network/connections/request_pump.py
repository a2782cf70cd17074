"""The requests of one connection, without its socket: frames in, one request after the other, responses out in order.

As in Kafka, a connection is muted from the moment a request is taken until its response has been queued: the next frame
waits even if it has arrived.  Responses are therefore in request order.  The connection of a client that exceeds a
quota stays muted for the throttle time after that (KIP-219).

Unlike in Kafka, a request that has been performed and only waits for replicas does not delay the next one of its API
(Produce with acks=all): with several requests in flight, each fetch of a follower carries the records of several.  They
are performed in the order of their frames and answered in this order too.  See
docs/decisions/produce-requests-in-flight.md.

The owner moves bytes between the pump and the network, and calls `turn` when bytes have arrived, when `on_wake` reports
that a response is ready, and when responses have been sent.  A turn ends after a bounded number of requests and
bytes and a bounded time, so that one connection with many pipelined requests does not delay the others.  The network
of the simulator runs the same pump.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from types import NoneType

from kctl.limits import LONE_FRAME_BYTES_MAX, TURN_MS_MAX, Subject, bound
from kctl.server.network.connections.channel import (
    Channel,
    ChannelEnded,
    KeepsFrame,
    PerformedReply,
    Reply,
    ThrottledReply,
)
from kctl.server.network.connections.inbox import Inbox
from kctl.server.network.connections.outbox import Chunk

TURN_REQUESTS_MAX = bound(
    Subject.CONNECTIONS,
    "pipelined requests of one connection that are handled in a row",
    256,
    "requests",
    on_excess="the other connections get their turn first",
)
WAITING_PRODUCES_MAX = bound(
    Subject.CONNECTIONS,
    "Produce requests of one connection that wait for replicas at the same time",
    16,
    "requests",
    on_excess="the next request is not handled before the first response has been sent",
)
TURN_REQUEST_BYTES_MAX = bound(
    Subject.CONNECTIONS,
    "bytes of requests of one connection that are handled in a row, after the first",
    1 << 20,
    "bytes",
    on_excess="the other connections get their turn first",
)
TURN_RESPONSE_BYTES_MAX = bound(
    Subject.CONNECTIONS,
    "bytes of responses of one connection that are made in a row, after the first",
    1 << 20,
    "bytes",
    on_excess="the other connections get their turn first",
)


TURN_S_MAX = TURN_MS_MAX / 1000
_API_KEY_BYTES = 2
"""The size of the API key, with which each frame begins."""


class TurnEnd(Enum):
    """Why a turn ended."""

    NEEDS_BYTES = "needs bytes"
    """No whole frame has arrived."""
    WAITS = "waits"
    """A request waits for its response, or the connection is muted; `on_wake` will be called."""
    HAS_MORE = "has more"
    """The budget of the turn is used up; more frames may have arrived."""
    ANSWERED_ONE = "answered one"
    """The only bytes that had arrived were one short request, which has been answered."""


_NEEDS_BYTES, _WAITS, _HAS_MORE = TurnEnd.NEEDS_BYTES, TurnEnd.WAITS, TurnEnd.HAS_MORE
_ANSWERED_ONE = TurnEnd.ANSWERED_ONE
"""Constants, because Python 3.11 takes 0.1 us to find a member of an enum."""


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
        "_overlapping",
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
        self._pending: deque[asyncio.Future[Reply] | Reply | Exception] = deque()
        """The replies from the first one on that is not known yet, in the order of the requests."""
        self._overlapping = b""
        """The API key of the requests that may be taken while there are pending replies; empty if there are none."""
        self._mute: asyncio.TimerHandle | None = None
        self._error: BaseException | None = None
        self._is_closed = False

    @property
    def is_waiting(self) -> bool:
        """Whether no request is taken: one waits for its response, or the connection is muted."""
        return self._mute is not None or (bool(self._pending) and not self._overlapping)

    @property
    def is_muted(self) -> bool:
        """Whether no request is taken because of a quota."""
        return self._mute is not None

    def turn(self, time_s: float = TURN_S_MAX) -> TurnEnd:
        """Handle frames until the budget is used up, a request has to wait, or more bytes are needed.

        `time_s` is the part of the budget that is time in seconds, from the end of the first request on.
        Raises MalformedRequest, UnansweredRequestFailed and ChannelEnded, also for a request that has waited, and any
        exception of a handler; the owner must then send the queued responses and close the connection.
        """
        if self._error is not None:
            self._raise_error()
        inbox, channel, pending = self._inbox, self._channel, self._pending
        if self._mute is not None or (pending and not self._overlapping):
            return _WAITS
        end_s = 0.0
        request_bytes = response_bytes = 0
        for count in range(TURN_REQUESTS_MAX):
            if request_bytes >= TURN_REQUEST_BYTES_MAX or response_bytes >= TURN_RESPONSE_BYTES_MAX:
                break
            # The first request is always handled, and a connection with one request does not read the clock.
            if count == 1:
                end_s = self._now_s() + time_s
            elif count and self._now_s() >= end_s:
                break
            if pending and not self._may_overlap():
                return _WAITS
            # A client that authenticates may send larger requests from then on.
            inbox.frame_bytes_max = channel.frame_bytes_max
            if pending:
                if (size := self._take_overlapping()) is None:
                    return _NEEDS_BYTES
                request_bytes += size
                continue
            frame = inbox.next_frame()
            if frame is None:
                return _NEEDS_BYTES
            request_bytes += len(frame)
            reply = channel.handle(frame)
            if isinstance(reply, list):
                response_bytes += self._put(reply)
                if not inbox:
                    return _NEEDS_BYTES if count or request_bytes > LONE_FRAME_BYTES_MAX else _ANSWERED_ONE
            elif self._has_to_wait(reply, frame):
                return _WAITS
        return _HAS_MORE

    def turn_of_one(self, frame: memoryview) -> TurnEnd:
        """As `turn`, for a frame that has arrived while nothing else had: no request waits, and the inbox is empty.

        The frame has at most LONE_FRAME_BYTES_MAX.  Its memory may be used again after the call.
        """
        reply = self._channel.handle(frame)
        if isinstance(reply, list):
            self._put(reply)
            return _ANSWERED_ONE
        return _WAITS if self._has_to_wait(reply, frame) else _NEEDS_BYTES

    def _has_to_wait(self, reply: asyncio.Future[Reply] | ThrottledReply | None, frame: memoryview) -> bool:
        """Note a reply that is not the chunks of a response; return whether the next request has to wait for it."""
        if reply is None:
            return False
        if isinstance(reply, ThrottledReply):
            self._put_and_mute(reply)
            return True
        self._pending.append(reply)
        if isinstance(reply, KeepsFrame):
            self._inbox.keep_frame(reply)
        reply.add_done_callback(self._on_reply)
        if not isinstance(reply, PerformedReply) or not reply.may_overlap:
            return True
        self._overlapping = bytes(frame[:_API_KEY_BYTES])
        return False

    def close(self) -> None:
        """Cancel a waiting request and release the memory of received bytes.  `on_wake` is not called any more.

        A request that is being processed is completed, so that no topic is created in part.
        """
        if self._is_closed:
            return
        self._is_closed = True
        # Removes the reference cycle with the owner, so that both are freed at once, without the garbage collector.
        self._on_wake = _ignore
        self._inbox.close()
        for reply in self._pending:
            if isinstance(reply, asyncio.Future):
                reply.remove_done_callback(self._on_reply)
                reply.cancel()
        self._pending.clear()
        if self._mute is not None:
            self._mute.cancel()

    def _put_and_mute(self, reply: ThrottledReply) -> None:
        if reply.chunks is not None:
            self._put(reply.chunks)
        if self._mute is not None:
            self._mute.cancel()  # For the request before, whose usage counts for this one too.
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

    def _may_overlap(self) -> bool:
        """Return whether the next request may be taken while earlier ones wait for their responses."""
        return (
            self._overlapping != b""
            and len(self._pending) < WAITING_PRODUCES_MAX
            and self._inbox.next_frame_begins_with(self._overlapping)
        )

    def _take_overlapping(self) -> int | None:
        """Handle a request while earlier ones wait; its reply, or its failure, is sent after theirs.

        Return its size in bytes, or None when more bytes are needed.
        """
        size = 0
        try:
            frame = self._inbox.next_frame()
            if frame is None:
                return None
            size = len(frame)
            reply = self._channel.handle(frame)
        except Exception as error:
            self._pending.append(error)
            self._overlapping = b""
            return size
        if reply is not None:
            self._pending.append(reply)
        if isinstance(reply, KeepsFrame):
            self._inbox.keep_frame(reply)
        is_performed = reply.may_overlap if isinstance(reply, PerformedReply) else isinstance(reply, (list, NoneType))
        if not is_performed:
            self._overlapping = b""
        return size

    def _on_reply(self, _: asyncio.Future[Reply]) -> None:
        """Queue the replies that are known, up to the first that is not."""
        pending = self._pending
        while pending and self._error is None:
            first = pending[0]
            if isinstance(first, asyncio.Future) and not first.done():
                # A request that overlapped others gets the callback only now: its reply is sent after theirs.
                first.add_done_callback(self._on_reply)
                break
            pending.popleft()
            reply = _outcome(first) if isinstance(first, asyncio.Future) else first
            if isinstance(reply, BaseException):
                # The next turn raises it, when the responses before it are queued.
                self._error = reply
                if isinstance(reply, ChannelEnded) and reply.last is not None:
                    self._put(reply.last)
            elif isinstance(reply, ThrottledReply):
                self._put_and_mute(reply)
            elif reply is not None:
                self._put(reply)
        if not pending:
            self._overlapping = b""
        self._on_wake()


def _outcome(reply: asyncio.Future[Reply]) -> Reply | BaseException:
    if reply.cancelled():
        return asyncio.CancelledError("the request was cancelled")
    return reply.exception() or reply.result()


def _ignore() -> None:
    """Replace `on_wake` in a closed pump."""
