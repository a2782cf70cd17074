"""SaslHandshake (key 17, versions 0-1): ILLEGAL_SASL_STATE here, because channels of SASL listeners handle it.

It arrives here on a listener without SASL, or when a client may not authenticate again: its session does not expire, or
it last authenticated less than a second ago (KIP-368).
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kctl.server.requests.context import RequestContext


def sasl_handshake(_request: SaslHandshakeRequest, _context: RequestContext) -> SaslHandshakeResponse:
    """Respond like Kafka's KafkaApis.handleSaslHandshakeRequest."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
