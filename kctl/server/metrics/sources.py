"""Where the values of metrics come from: the parts of a broker that serves.

Owner: event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kctl.server.coordination.groups.actions import GroupCounts
    from kctl.server.loop.lag import LoopLag
    from kctl.server.network.connection_limits import ConnectionLimits
    from kctl.server.network.listen_settings import ListeningState
    from kctl.server.parts.parts import BrokerParts, Foundations
    from kctl.server.parts.session import BrokerSession
    from kctl.server.requests.recorder import RequestRecorder
    from kctl.server.security.authorization.access import Denial
    from kctl.server.security.sasl.listeners import Channels

SAMPLE_EVERY_S = 5.0
_SAMPLES = 13
"""One minute, and the sample at its beginning."""


class BrokerState(IntEnum):
    """Values of Kafka's BrokerState."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class Sample(NamedTuple):
    """Counters at one time, from which rates are computed."""

    time_s: float
    busy_s: float
    """How long the event loop has been busy since its start."""
    opened: Mapping[str, int]
    """Connections since the start by listener."""
    closed: Mapping[str, int]
    groups: GroupCounts | None = None
    """What the group coordinator has counted; None before it exists."""


class LastMinute:
    """Samples of the last minute, taken every SAMPLE_EVERY_S and when rates are read."""

    def __init__(self, first: Sample) -> None:
        self._samples: deque[Sample] = deque((first,), maxlen=_SAMPLES)

    def add(self, sample: Sample) -> None:
        """Add a sample."""
        self._samples.append(sample)

    def idle_share(self, now: Sample) -> float:
        """Return the share of the last minute in which the event loop was idle, from 0 to 1."""
        old = self._samples[0]
        elapsed_s = now.time_s - old.time_s
        return 1.0 if elapsed_s <= 0 else max(0.0, min(1.0, 1 - (now.busy_s - old.busy_s) / elapsed_s))

    def opened_per_second(self, now: Sample, listener: str) -> float:
        """Return the number of connections per second that were accepted."""
        old = self._samples[0]
        return _rate(now.opened.get(listener, 0) - old.opened.get(listener, 0), now.time_s - old.time_s)

    def groups_per_second(self, now: Sample, count: Callable[[GroupCounts], int]) -> float:
        """Return the events of the group coordinator per second; `count` takes one of its counters."""
        old = self._samples[0]
        if now.groups is None:
            return 0.0
        before = 0 if old.groups is None else count(old.groups)
        return _rate(count(now.groups) - before, now.time_s - old.time_s)

    def closed_per_second(self, now: Sample, listener: str) -> float:
        """Return the number of connections per second that were closed."""
        old = self._samples[0]
        return _rate(now.closed.get(listener, 0) - old.closed.get(listener, 0), now.time_s - old.time_s)


def _rate(count: int, elapsed_s: float) -> float:
    return count / elapsed_s if elapsed_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The parts of a running broker."""

    base: Foundations
    parts: BrokerParts
    recorder: RequestRecorder
    listening: Callable[[], ListeningState]
    limits: ConnectionLimits
    channels: Channels
    session: BrokerSession
    state: Callable[[], BrokerState]
    lag: LoopLag
    last_minute: LastMinute
    sample: Callable[[], Sample]
    started_ms: int
    """When the broker began to serve, in ms since 1970."""
    denials: Callable[[], list[tuple[Denial, int]]]
    """What the authorizer has denied, and how often; empty without an authorizer."""
    idle_s: Callable[[], float]
    """How long the event loop has been idle since the metrics started."""
