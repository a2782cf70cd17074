"""SaslHandshake (key 17, versions 0-1): a client chooses the mechanism of its authentication.

0: the tokens follow as bare frames.  1: they follow in SaslAuthenticate requests (KIP-152).  Never flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, request, response, string


@request(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    mechanism: str = string()


@response(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = array(string)
