"""The client and connection of a request, for handlers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kctl.server.quotas.accounts import RequestAccount

ANONYMOUS = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True)
class Peer:
    """One accepted connection."""

    client_host: str
    """Text of Java's InetAddress: a slash and the address, as group metadata stores it."""
    listener: str
    principal: str = ANONYMOUS
    """The authenticated principal as `Type:name`, from the certificate or from SASL."""
    security_protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    is_token_authenticated: bool = False
    """Whether the client authenticated with a delegation token (KIP-48)."""


@dataclass(slots=True)
class RequestContext:
    """One request: its header and its connection."""

    api_version: int
    correlation_id: int
    client_id: str
    peer: Peer
    account: RequestAccount | None = None
    """What the request uses of the quotas of its client; None for a client without quotas."""

    @property
    def client_host(self) -> str:
        """The client's address, see Peer."""
        return self.peer.client_host

    @property
    def listener(self) -> str:
        """The name of the listener that accepted the connection."""
        return self.peer.listener

    @property
    def principal(self) -> str:
        """The authenticated principal."""
        return self.peer.principal
