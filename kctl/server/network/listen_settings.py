"""Settings that all listeners of a broker share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kctl.server.network.connection_limits import ConnectionLimits
from kctl.server.network.tls.handshakes import ListenerTls
from kctl.server.requests.recorder import ConnectionTiming, Measuring

TLS_PROTOCOLS = frozenset({"SSL", "SASL_SSL"})
"""The security protocols that begin with a TLS handshake."""


class ListeningState(NamedTuple):
    """The state of the connections, for metrics."""

    timings: Sequence[ConnectionTiming] = ()
    """The timing of each open connection."""
    queued_requests: int = 0
    """Connections whose requests wait for their turn."""
    queued_responses: int = 0
    """Connections whose responses wait for the peer to read."""
    received_bytes: int = 0
    """Memory that requests use while they are received and handled."""
    received_bytes_max: int = -1
    """queued.max.request.bytes; below 1 for no limit."""
    malformed_requests: int = 0
    """Connections closed because of a malformed request, since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenSettings:
    """Settings of all listeners and their connections."""

    connections_max_idle_ms: int = 0
    """Time after which an idle connection is closed; 0 for never."""
    request_bytes_max: int = -1
    """queued.max.request.bytes; below 1 for no limit."""
    urgent_listener: str | None = None
    """The control-plane listener: its requests overtake those of the others."""
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    send_buffer_bytes: int = -1
    """SO_SNDBUF of connections; -1 for the operating system's choice."""
    receive_buffer_bytes: int = -1
    """SO_RCVBUF, in the same way."""
    measuring: Measuring = field(default_factory=Measuring)
    """Whether connections record times; it can change."""
    tls: ListenerTls | None = None
    """Required by listeners with the protocols SSL and SASL_SSL."""
