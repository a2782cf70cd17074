"""SaslHandshake (key 17, versions 0-1): always refused with ILLEGAL_SASL_STATE: no listener authenticates clients.

Not done: SASL.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kctl.server.requests.context import RequestContext


def sasl_handshake(_request: SaslHandshakeRequest, _context: RequestContext) -> SaslHandshakeResponse:
    """Responds like Kafka's KafkaApis.handleSaslHandshakeRequest on a PLAINTEXT listener."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
