"""SaslAuthenticate (key 36, versions 0-2): always refused with ILLEGAL_SASL_STATE: no listener authenticates clients.

Not done: SASL.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kctl.server.requests.context import RequestContext


def sasl_authenticate(_request: SaslAuthenticateRequest, _context: RequestContext) -> SaslAuthenticateResponse:
    """Responds like Kafka's KafkaApis.handleSaslAuthenticateRequest on a PLAINTEXT listener."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="This listener does not authenticate clients.",
        auth_bytes=b"",
    )
