"""When requests pass their stages, for metrics and the request log.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class RequestTimes:
    """When a request passed its stages, in seconds of the event loop's clock.

    Only recorded with metrics.port or request.log.mode.
    """

    request_bytes: int
    received_s: float
    """The latest bytes of the connection arrived."""
    started_s: float
    handled_s: float = 0.0
    """The handler returned; it may have returned an awaitable."""
    ready_s: float = 0.0
    """The response was encoded."""
    flushed_s: float = 0.0
    """The response was first passed to the socket."""
    sent_s: float = 0.0
    """The socket had taken the whole response."""
    throttle_ms: int = 0
    response_bytes: int = 0
    """Only set for the request log."""
    on_sent: Callable[[RequestTimes], None] | None = None
    """Called when the socket has taken the response."""

    @property
    def queue_ms(self) -> float:
        """The wait for the connection's turn."""
        return (self.started_s - self.received_s) * 1000

    @property
    def local_ms(self) -> float:
        """Decoding and handling, without waiting; 0 for a request that is decoded in a thread."""
        return (self.handled_s - self.started_s) * 1000 if self.handled_s else 0.0

    @property
    def remote_ms(self) -> float:
        """Waiting, work in threads, and encoding the response."""
        return (self.ready_s - (self.handled_s or self.started_s)) * 1000

    @property
    def response_queue_ms(self) -> float:
        """The wait of the response until it was first passed to the socket."""
        return (self.flushed_s - self.ready_s) * 1000

    @property
    def send_ms(self) -> float:
        """The time until the socket had taken the whole response."""
        return (self.sent_s - self.flushed_s) * 1000


class Measuring:
    """Whether connections record times."""

    __slots__ = ("_for_log", "_for_metrics", "is_on")

    def __init__(self, *, for_metrics: bool = False) -> None:
        self._for_metrics = for_metrics
        self._for_log = False
        self.is_on = for_metrics
        """True for metrics or for the request log."""

    def switch(self, *, for_metrics: bool | None = None, for_log: bool | None = None) -> None:
        """Switches the recording of times for metrics and for the request log on or off; None leaves it unchanged."""
        self._for_metrics = self._for_metrics if for_metrics is None else for_metrics
        self._for_log = self._for_log if for_log is None else for_log
        self.is_on = self._for_metrics or self._for_log


class ConnectionTiming:
    """The measurements of one connection."""

    __slots__ = ("flushing_s", "measuring", "received_s", "software", "unsent")

    def __init__(self, measuring: Measuring) -> None:
        self.measuring = measuring
        self.flushing_s = 0.0
        """When responses were first passed to the socket, of those that it has not taken."""
        self.received_s = 0.0
        """When bytes were received last."""
        self.unsent: list[RequestTimes] = []
        """The requests whose responses are not sent yet."""
        self.software = ("unknown", "unknown")
        """Name and version of the client's software (KIP-511)."""

    def sent(self, now_s: float) -> None:
        """The socket has taken all responses."""
        for times in self.unsent:
            times.flushed_s = max(times.flushed_s, self.flushing_s)
            times.sent_s = now_s
            if times.on_sent is not None:
                times.on_sent(times)
        self.unsent.clear()
        self.flushing_s = 0.0
