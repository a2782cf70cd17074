"""SaslAuthenticate (key 36, versions 0-2): one step of an authentication; what the bytes mean is the mechanism's.

1: the session's lifetime, after which the client authenticates again (KIP-368).  2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import bytes_, int16, int64, request, response, string


@request(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: bytes = bytes_(secret=True)


@response(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    auth_bytes: bytes = bytes_(secret=True)
    session_lifetime_ms: int = int64("1+", default=0, ignorable=True)
