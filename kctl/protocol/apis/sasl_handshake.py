"""SaslHandshake (key 17, versions 0-1): selects the SASL mechanism (KIP-43).

0: the SASL messages follow as frames without a header.  1: they follow in SaslAuthenticate requests (KIP-152).  Never
flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, request, response, string


@request(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    """The first request of an authentication, after ApiVersions at most."""

    mechanism: str = string()
    """Such as `PLAIN`, `SCRAM-SHA-256` or `OAUTHBEARER`."""


@response(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    """The result."""

    error_code: int = int16()
    """UNSUPPORTED_SASL_MECHANISM, after which the broker closes the connection."""
    mechanisms: list[str] = array(string)
    """The mechanisms that this listener accepts."""
