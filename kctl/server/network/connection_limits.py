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

from kctl.config.broker import BROKER_PROPERTIES, BrokerConfig
from kctl.config.dynamic import ConfigView
from kctl.config.listeners import inter_broker_listener, listener_endpoints
from kctl.errors import ConfigError
from kctl.limits import Subject, bound
from kctl.server.requests.context import peer_address

CONNECTION_RATES_MAX = bound(
    Subject.CONNECTIONS,
    "addresses whose connection rate is counted",
    10_000,
    "addresses",
    on_excess="the address that has not connected for the longest time starts from zero",
)


UNLIMITED = 2**31 - 1


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
        """Return the limits of a listener."""
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
        """Count one event; return for how many ms to pause so that the rate falls to `limit` per second."""
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
        """Remove the event that was counted last."""
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
        """Return whether the listener may accept a connection now."""
        if self._by_listener[listener] >= self.settings.listener(listener).connections:
            return False
        return self._is_protected(listener) or self.count < self.settings.connections

    @property
    def by_listener(self) -> Mapping[str, int]:
        """Open connections by listener."""
        return self._by_listener

    def has_excess(self) -> bool:
        """Return whether a connection of a listener that is not protected has to be closed."""
        return self.count > self.settings.connections

    def is_closable(self, listener: str) -> bool:
        """Return whether a connection of this listener may be closed because of `has_excess`."""
        return not self._is_protected(listener)

    def admit(self, listener: str, address: str, now_ms: int) -> Admission:
        """Count an accepted connection.  The caller calls `released` when it is closed, unless it is refused."""
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
        """Note that an admitted connection has been closed."""
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


# The limits of connections, from the broker's properties.
#
# `listener.name.NAME.max.connections` and `listener.name.NAME.max.connection.creation.rate` limit one listener.
#
# Pure.


def limit_settings(
    config: BrokerConfig, properties: Mapping[str, str], addresses: Mapping[str, str] | None = None
) -> LimitSettings:
    """Return the limits in force.  Raises ConfigError.

    `properties` has the texts of all properties, `addresses` the address of each host in `named_hosts`.
    """
    known = addresses or {}
    names = [endpoint.listener for endpoint in listener_endpoints(config)]
    return LimitSettings(
        connections=config.max_connections,
        connections_per_second=config.max_connection_creation_rate,
        connections_per_address=config.max_connections_per_ip,
        per_address={known.get(host, host): count for host, count in _exceptions(config)},
        listeners={name: _listener_limits(properties, name) for name in names},
        protected_listener=inter_broker_listener(config) if len(names) > 1 else None,
        windows=config.quota_window_num,
        window_ms=config.quota_window_size_seconds * 1000,
    )


def set_size(configs: ConfigView, name: str) -> int:
    """Return the value of a property for the size of a socket buffer, if it is set; -1 otherwise, for the system's
    choice.

    Kafka also applies its defaults, which are smaller than the sizes to which current systems adapt the buffers.
    """
    if name not in configs.static:
        return -1
    size = BROKER_PROPERTIES[name].parse(configs.static[name])
    assert isinstance(size, int)
    return size


def named_hosts(config: BrokerConfig) -> list[str]:
    """Return the hosts in max.connections.per.ip.overrides that are not IP addresses."""
    return [host for host, _ in _exceptions(config) if not _is_address(host)]


def _exceptions(config: BrokerConfig) -> list[tuple[str, int]]:
    entries = [entry.strip() for entry in config.max_connections_per_ip_overrides.split(",") if entry.strip()]
    pairs = (entry.rpartition(":") for entry in entries)
    return [(_canonical(host.strip("[]")), int(count)) for host, _, count in pairs]


def _canonical(host: str) -> str:
    """Return an address in the form in which those of connections are written."""
    return peer_address(host) if _is_address(host) else host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _listener_limits(properties: Mapping[str, str], listener: str) -> ListenerLimits:
    return ListenerLimits(
        connections=_limit(properties, listener, "max.connections"),
        connections_per_second=_limit(properties, listener, "max.connection.creation.rate"),
    )


def _limit(properties: Mapping[str, str], listener: str, name: str) -> int:
    of_listener = f"listener.name.{listener.lower()}.{name}"
    text = properties.get(of_listener, "").strip()
    if not text:
        return UNLIMITED
    try:
        value = BROKER_PROPERTIES[name].parse(text)
    except ValueError as error:
        raise ConfigError(of_listener, text, str(error)) from None
    assert isinstance(value, int)
    return min(value, UNLIMITED)
