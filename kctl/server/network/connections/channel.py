"""The channel of a connection: handles its frames and holds the identity of the client.  Kafka: KafkaChannel.

A listener without authentication passes each frame to the dispatcher.  A listener with authentication admits requests
only after the client has authenticated.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kctl.errors import KctlError
from kctl.server.network.connections.outbox import Chunk
from kctl.server.requests.context import Peer


class ThrottledReply(NamedTuple):
    """A reply after which the connection is muted for the throttle time of a quota."""

    chunks: list[Chunk] | None
    """The chunks of one framed response; None for a request without a response."""
    mute_ms: int


Reply = list[Chunk] | ThrottledReply | None
"""The chunks of one framed response; None for a request without a response (produce with acks=0)."""


class PerformedReply(asyncio.Future[Any]):
    """The reply of a request that has been performed and waits for something else, such as replicas.

    With `may_overlap` the next request of the same API may be performed before this reply is sent.
    """

    may_overlap = False


class KeepsFrame(asyncio.Future[Reply]):
    """The future reply of a request whose frame is still read: its buffer must not be used for other bytes."""


class ChannelEnded(KctlError):
    """The channel has ended the connection and has logged the reason.  `last` is sent before it is closed."""

    def __init__(self, last: list[Chunk] | None = None) -> None:
        super().__init__("the channel has ended the connection")
        self.last = last


class Channel(Protocol):
    """One connection from its first frame to its last."""

    @property
    def frame_bytes_max(self) -> int:
        """The size in bytes of the largest frame that the client may send now; it changes with the client's state."""
        ...

    @property
    def handle(self) -> Callable[[memoryview], Reply | asyncio.Future[Reply]]:
        """Handles one frame, which is valid until the call returns, or for as long as it is referred to if it returns
        KeepsFrame.  Cancelling the future ends a wait.

        Raises MalformedRequest, UnansweredRequestFailed and ChannelEnded; the connection has to be closed then.
        """
        ...


Handle = Callable[[memoryview, Peer], "Reply | asyncio.Future[Reply]"]
"""Handles one frame of a peer; see Channel.handle."""

OpenChannel = Callable[[Peer], Channel]
"""Creates the channel of an accepted connection."""


class DirectChannel:
    """Passes each frame to the handler: there is no authentication, or TLS has authenticated the client."""

    __slots__ = ("frame_bytes_max", "handle")

    def __init__(self, handle: Handle, peer: Peer, *, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.handle: Callable[[memoryview], Reply | asyncio.Future[Reply]] = lambda frame: handle(frame, peer)
