"""Decides which connections are accepted, and when.  KIP-402, KIP-612.

- The broker and each listener have a maximum number of connections.  At the maximum the listener stops accepting, and
  new clients wait in the system's backlog.  The inter-broker listener, if there are others, is protected: it may
  exceed the maximum of the broker, and a connection of another listener is closed instead.
- An address above its maximum is refused: the connection is closed at once.
- The broker and each listener have a maximum rate.  Above it the listener pauses.
- An address above its rate is refused after a delay, so that it does not connect again at once.  Refused connections
  count for no rate: a client that tries again and again gets what its rate allows, and others do not wait for it.

Kafka: ConnectionQuotas (2.8).  Pure; times are arguments.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kctl.limits import CONNECTION_RATES_MAX

UNLIMITED = 2**31 - 1


def peer_address(text: str) -> str:
    """An IP address in the form in which those of connections are written.  Raises ValueError for other texts.

    IPv4 addresses that are mapped into IPv6 are written as IPv4, as Java does.
    """
    parsed = ipaddress.ip_address(text)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of one listener."""

    connections: int = UNLIMITED
    connections_per_second: int = UNLIMITED


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """All limits in force."""

    connections: int = UNLIMITED
    connections_per_second: int = UNLIMITED
    connections_per_address: int = UNLIMITED
    per_address: Mapping[str, int] = field(default_factory=dict)
    """Overrides of `connections_per_address`, by the text of the address."""
    listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)
    protected_listener: str | None = None
    """The inter-broker listener, if the broker has others."""
    windows: int = 11
    """quota.window.num: the number of windows over which rates are taken."""
    window_ms: int = 1000
    """quota.window.size.seconds, in ms; also the longest pause.  Kafka: ConnectionQuotas.maxThrottleTimeMs."""

    def listener(self, name: str) -> ListenerLimits:
        """The limits of a listener."""
        return self.listeners.get(name, ListenerLimits())


class RateWindow:
    """Counts events in `count` windows of `length_ms` each.  Kafka: Rate with SampledStat."""

    __slots__ = ("_count", "_length_ms", "_windows")

    def __init__(self, count: int = 11, length_ms: int = 1000) -> None:
        self._count = count
        self._length_ms = length_ms
        self._windows: deque[list[int]] = deque()
        """Start in ms and count of each window."""

    def record(self, now_ms: int, limit: float) -> int:
        """Counts one event; returns for how many ms to pause so that the rate falls to `limit` per second."""
        windows = self._windows
        while windows and windows[0][0] <= now_ms - self._count * self._length_ms:
            windows.popleft()
        if windows and now_ms < windows[-1][0] + self._length_ms:
            windows[-1][1] += 1
        else:
            windows.append([now_ms, 1])
        elapsed_ms = now_ms - windows[0][0]
        full = elapsed_ms // self._length_ms
        if full < self._count - 1:
            elapsed_ms += (self._count - 1 - full) * self._length_ms
        allowed = limit * elapsed_ms / 1000
        excess = sum(count for _, count in windows) - allowed
        if excess <= 0:
            return 0
        return min(round(excess / limit * 1000), self._length_ms) if limit else self._length_ms

    def forget_one(self) -> None:
        """Removes the event that was counted last."""
        if self._windows:
            self._windows[-1][1] -= 1


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision about one accepted socket."""

    refusal: str | None = None
    """Why the connection must be closed; None if it is admitted."""
    close_after_ms: int = 0
    """Time after which a refused connection is closed."""
    pause_ms: int = 0
    """Time for which the listener accepts no more connections."""


class ConnectionLimits:
    """Counts connections and decides.  Owner: event loop."""

    def __init__(self, settings: LimitSettings | None = None) -> None:
        self.settings = settings or LimitSettings()
        """The limits in force; may be replaced at any time."""
        self.connection_rate_of: Callable[[str], float | None] = lambda _address: None
        """The quota `connection_creation_rate` of an address in connections per second; None for no limit."""
        self.count = 0
        self._by_listener: Counter[str] = Counter()
        self._by_address: Counter[str] = Counter()
        self.admitted: Counter[str] = Counter()
        """Connections since the start, by listener."""
        self._rate: RateWindow | None = None
        self._listener_rates: dict[str, RateWindow] = {}
        self._address_rates: dict[str, RateWindow] = {}

    def has_slot(self, listener: str) -> bool:
        """Whether the listener may accept a connection now."""
        if self._by_listener[listener] >= self.settings.listener(listener).connections:
            return False
        return self._is_protected(listener) or self.count < self.settings.connections

    @property
    def by_listener(self) -> Mapping[str, int]:
        """Open connections by listener."""
        return self._by_listener

    def has_excess(self) -> bool:
        """Whether a connection of a listener that is not protected has to be closed."""
        return self.count > self.settings.connections

    def is_closable(self, listener: str) -> bool:
        """Whether a connection of this listener may be closed because of `has_excess`."""
        return not self._is_protected(listener)

    def admit(self, listener: str, address: str, now_ms: int) -> Admission:
        """Counts an accepted connection.  The caller calls `released` when it is closed, unless it is refused."""
        if delay_ms := self._record_address(address, now_ms):
            return Admission("connection_creation_rate of its address", delay_ms)
        pause_ms = self._record(listener, now_ms)
        allowed = self.settings.per_address.get(address, self.settings.connections_per_address)
        if self._by_address[address] >= allowed:
            return Admission("max.connections.per.ip", 0, pause_ms)
        self.count += 1
        self._by_listener[listener] += 1
        self.admitted[listener] += 1
        self._by_address[address] += 1
        return Admission(pause_ms=pause_ms)

    def released(self, listener: str, address: str) -> None:
        """An admitted connection has been closed."""
        self.count -= 1
        self._by_listener[listener] -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _is_protected(self, listener: str) -> bool:
        return listener == self.settings.protected_listener

    def _record(self, listener: str, now_ms: int) -> int:
        of_broker = self.settings.connections_per_second
        of_listener = self.settings.listener(listener).connections_per_second
        pause_ms = 0
        if of_broker != UNLIMITED and not self._is_protected(listener):
            if self._rate is None:
                self._rate = self._new_rate()
            pause_ms = self._rate.record(now_ms, of_broker)
        if of_listener != UNLIMITED:
            pause_ms = max(pause_ms, self._listener_rate(listener).record(now_ms, of_listener))
        return pause_ms

    def _listener_rate(self, listener: str) -> RateWindow:
        rate = self._listener_rates.get(listener)
        if rate is None:
            rate = self._listener_rates[listener] = self._new_rate()
        return rate

    def _new_rate(self) -> RateWindow:
        return RateWindow(self.settings.windows, self.settings.window_ms)

    def _record_address(self, address: str, now_ms: int) -> int:
        limit = self.connection_rate_of(address)
        if limit is None:
            self._address_rates.pop(address, None)
            return 0
        rates = self._address_rates
        rate = rates.pop(address, None) or self._new_rate()
        # The address that has not connected for the longest time is first.
        rates[address] = rate
        if len(rates) > CONNECTION_RATES_MAX:
            del rates[next(iter(rates))]
        delay_ms = rate.record(now_ms, limit)
        if delay_ms:
            rate.forget_one()
        return delay_ms
