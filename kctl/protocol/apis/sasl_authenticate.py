"""SaslAuthenticate (key 36, versions 0-2): one step of a SASL authentication (KIP-152).

1: session lifetime (KIP-368).  2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import bytes_, int16, int64, request, response, string


@request(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    """Follows SaslHandshake version 1; repeated until the authentication is complete."""

    auth_bytes: bytes = bytes_(secret=True)
    """The client's message in the chosen mechanism."""


@response(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """The result of one step."""

    error_code: int = int16()
    """SASL_AUTHENTICATION_FAILED, after which the broker closes the connection."""
    error_message: str | None = string(nullable="0+", default=None)
    auth_bytes: bytes = bytes_(secret=True)
    """The server's message in the chosen mechanism."""
    session_lifetime_ms: int = int64("1+", default=0, ignorable=True)
    """The client must authenticate again within this time; 0 for no limit."""
