"""What a handler knows about who asks."""

from __future__ import annotations

from dataclasses import dataclass

ANONYMOUS = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True)
class Peer:
    """One accepted connection, as far as handlers care."""

    client_host: str
    """Java's InetAddress text: a slash and the address, as group metadata stores it."""
    listener: str
    principal: str = ANONYMOUS


@dataclass(slots=True)
class RequestContext:
    """One request: its header and the connection that it came in on."""

    api_version: int
    correlation_id: int
    client_id: str
    peer: Peer

    @property
    def client_host(self) -> str:
        return self.peer.client_host

    @property
    def listener(self) -> str:
        return self.peer.listener

    @property
    def principal(self) -> str:
        return self.peer.principal
