"""Explains why TLS failed: one line with the cause and the property to change.

Kafka: SslTransportLayer, which fails the authentication for a certificate or a protocol that one side does not accept;
another attempt does not help.
"""

from __future__ import annotations

import re
import ssl

from kctl.client.connections.transport import ConnectionClosed, ConnectionLost, is_closed
from kctl.errors import AuthenticationFailed, KctlError

_X509_NAMES = {62: "host name", 63: "email address", 64: "IP address"}
"""X509_V_ERR_HOSTNAME_MISMATCH and its siblings."""
_X509_VALIDITY = {9: "is not valid yet", 10: "has expired"}

_CLIENT_CERTIFICATE = "set ssl.keystore.location to a certificate that the broker trusts"
_PROTOCOL = (
    "the listener does not use TLS; set security.protocol to PLAINTEXT, or to SASL_PLAINTEXT with sasl.mechanism"
)
_UNREADABLE_ALERT = "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"
"""Java sends the alert for a missing certificate of TLS 1.3 unencrypted or with other keys."""
_REASONS: tuple[tuple[str, str], ...] = (
    (r"WRONG_VERSION_NUMBER|HTTP_REQUEST|UNKNOWN_PROTOCOL|RECORD_LAYER_FAILURE", _PROTOCOL),
    (r"CERTIFICATE_REQUIRED", f"the broker requires a certificate; {_CLIENT_CERTIFICATE}"),
    (
        r"ALERT_(?:BAD|UNSUPPORTED)_CERTIFICATE",
        f"the broker refused the certificate or misses one; {_CLIENT_CERTIFICATE}",
    ),
    (r"ALERT_CERTIFICATE_EXPIRED", "the certificate in ssl.keystore.location has expired"),
    (r"ALERT_CERTIFICATE_REVOKED", "the certificate in ssl.keystore.location is revoked"),
    (
        r"ALERT_(?:UNKNOWN_CA|CERTIFICATE_UNKNOWN|ACCESS_DENIED)",
        f"the broker refused the certificate; {_CLIENT_CERTIFICATE}",
    ),
    (
        r"ALERT_PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL|NO_PROTOCOLS_AVAILABLE",
        "no TLS version in common with the broker; check ssl.enabled.protocols",
    ),
    (
        r"ALERT_HANDSHAKE_FAILURE|NO_SHARED_CIPHER|ALERT_INSUFFICIENT_SECURITY",
        "the broker accepts neither cipher suite nor certificate; check ssl.cipher.suites and ssl.keystore.location",
    ),
    (r"UNRECOGNIZED_NAME", "the broker has no certificate for this host name; check bootstrap.servers"),
)


def error_of_tls(error: OSError, address: str, action: str) -> KctlError:
    """Return the error for a failed TLS connection.  `action` is what failed: "TLS handshake" or "TLS connection".

    AuthenticationFailed if another attempt cannot succeed, else ConnectionLost.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationFailed(f"{address}: {_untrusted(error)}")
    if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        reason = error.reason or ""
        for pattern, text in _REASONS:
            if re.search(pattern, reason):
                return AuthenticationFailed(f"{address}: {action} failed: {text}")
        if reason == _UNREADABLE_ALERT:
            text = f"the broker ended it with an unreadable alert; if it requires a certificate, {_CLIENT_CERTIFICATE}"
            return ConnectionLost(f"{address}: {action} failed: {text}")
        return ConnectionLost(f"{address}: {action} failed: {reason.replace('_', ' ').lower() or 'no reason given'}")
    if not _is_end(error):
        text = error.strerror or str(error)
        return ConnectionLost(f"{address}: {text[:1].lower()}{text[1:]}")
    if action == "TLS handshake":
        return ConnectionLost(
            f"{address}: the broker closed the connection during the TLS handshake; if this listener does not use TLS, "
            f"set security.protocol to PLAINTEXT or SASL_PLAINTEXT; if it requires a certificate, {_CLIENT_CERTIFICATE}"
        )
    return ConnectionClosed(f"{address}: the broker closed the connection")


def _is_end(error: OSError) -> bool:
    return isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)) or is_closed(error)


def _untrusted(error: ssl.SSLCertVerificationError) -> str:
    code, reason = error.verify_code, error.verify_message.rstrip(".")
    if code in _X509_NAMES:
        return (
            f"the broker's certificate is for another {_X509_NAMES[code]}; connect to one that it names, or set "
            "ssl.endpoint.identification.algorithm to nothing to skip this check"
        )
    if code in _X509_VALIDITY:
        return (
            f"the broker's certificate or one of its issuers {_X509_VALIDITY[code]}; it must be renewed on the broker"
        )
    return f"the broker's certificate is not trusted ({reason}); set ssl.truststore.location to its issuer"
