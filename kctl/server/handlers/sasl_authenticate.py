"""SaslAuthenticate (key 36, versions 0-2): ILLEGAL_SASL_STATE here, because channels of SASL listeners handle it.

It arrives here on a listener without SASL, or from a client that is authenticated already.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kctl.server.requests.context import RequestContext


def sasl_authenticate(_request: SaslAuthenticateRequest, _context: RequestContext) -> SaslAuthenticateResponse:
    """Respond like Kafka's KafkaApis.handleSaslAuthenticateRequest."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
