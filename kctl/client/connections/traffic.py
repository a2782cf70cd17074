"""What the connections of a client have done since the last push: requests, and how long brokers took."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kctl.client.connections.transport import Connection


@dataclass(slots=True)
class Spread:
    """Number, sum and maximum of values."""

    count: int = 0
    total: float = 0
    maximum: float = 0

    def add(self, value: float) -> None:
        """Add one."""
        self.count += 1
        self.total += value
        self.maximum = max(self.maximum, value)

    @property
    def average(self) -> float:
        """Of the values; 0 without any."""
        return self.total / self.count if self.count else 0


@dataclass(slots=True)
class Window:
    """What was measured between two pushes."""

    start_ms: int = 0
    connections: int = 0
    by_address: dict[str, Spread] = field(default_factory=dict)
    """Times of responses in ms, by the address of the broker."""
    by_request: dict[str, Spread] = field(default_factory=dict)
    """The same by the name of the request."""
    throttles: dict[str, Spread] = field(default_factory=dict)
    """How long the brokers have throttled the client, by the name of the request."""


class Traffic:
    """Counts for telemetry.  Owner: event loop."""

    def __init__(self, clock_ms: Callable[[], int], on_opened: Callable[[Connection], None]) -> None:
        self.clock_ms = clock_ms
        self.connections = self.requests = 0
        """Totals since the start."""
        self._on_opened = on_opened
        self._window = Window()

    def opened(self, connection: Connection) -> None:
        """Note a new connection."""
        if not self.connections:
            self._window.start_ms = self.clock_ms()
        self.connections += 1
        self._window.connections += 1
        self._on_opened(connection)

    def responded(self, address: str, request: object, response: Any, started_ms: int) -> None:
        """Note a response."""
        window, name = self._window, type(request).__name__.removesuffix("Request")
        took_ms = self.clock_ms() - started_ms
        self.requests += 1
        window.by_address.setdefault(address, Spread()).add(took_ms)
        window.by_request.setdefault(name, Spread()).add(took_ms)
        window.throttles.setdefault(name, Spread()).add(getattr(response, "throttle_time_ms", 0))

    def take(self) -> Window:
        """Return what was measured since the last call."""
        window, self._window = self._window, Window(self.clock_ms())
        return window

    @staticmethod
    def spread(spreads: Mapping[str, Spread], name: str) -> Spread:
        """Return the values of a name."""
        return spreads.get(name) or Spread()
