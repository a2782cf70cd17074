"""Checks a TLS listener: its certificates, the versions that it accepts, and whether a client trusts it.

It sends no Kafka request, so the address may be any TLS server.  Blocking sockets; every step ends at one deadline.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa

from kctl.config.addresses import address_text
from kctl.errors import ClusterUnreachable
from kctl.security.principals import name_text
from kctl.security.tls import TlsSettings, client_context
from kctl.system.tls_sockets import wrap_socket

VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
OLD_VERSIONS = ("TLSv1", "TLSv1.1")
_KEY_NAMES: dict[type, str] = {
    rsa.RSAPublicKey: "RSA",
    ec.EllipticCurvePublicKey: "EC",
    ed25519.Ed25519PublicKey: "Ed25519",
    ed448.Ed448PublicKey: "Ed448",
    dsa.DSAPublicKey: "DSA",
}
_HANDSHAKE_RECORD = b"\x16"
_SERVER_HELLO_BYTES = 11
"""Header of the record, header of the message, and the version."""


@dataclass(frozen=True, slots=True)
class CertificateReport:
    """One certificate of the chain."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    """Subject alternative names: host names and addresses."""
    valid_from: datetime
    valid_until: datetime
    key: str
    fingerprint: str
    """SHA-256, in hexadecimal."""


@dataclass(frozen=True, slots=True)
class TlsReport:
    """The result of a check."""

    host: str
    port: int
    version: str
    """The version that a current client and the server agree on."""
    cipher: str
    versions: tuple[str, ...]
    """All versions that the server accepts, the oldest first."""
    problem: str | None
    """Why a client with the given settings does not trust the server; None if it does."""
    certificates: tuple[CertificateReport, ...]
    """The chain that the server sends, its own certificate first."""

    @property
    def old_versions(self) -> tuple[str, ...]:
        """The accepted versions that RFC 8996 forbids."""
        return tuple(version for version in self.versions if version in OLD_VERSIONS)


def check_tls(
    host: str, port: int, settings: TlsSettings, *, server_name: str | None = None, left_s: Callable[[], float]
) -> TlsReport:
    """Use a new connection for each test.  `left_s` returns the seconds until the deadline.

    Raises ClusterUnreachable if nothing listens or the server does not support TLS; ConfigError for the settings.
    """
    address, name = (host, port), server_name or host
    chain, agreed, cipher = _handshake(address, name, settings, left_s)
    return TlsReport(
        host=host,
        port=port,
        version=agreed,
        cipher=cipher,
        versions=tuple(version for version in VERSIONS if _accepts(address, name, version, left_s)),
        problem=_problem(address, name, client_context(settings), left_s),
        certificates=tuple(_certificate(entry) for entry in chain),
    )


def server_certificate(
    host: str, port: int, settings: TlsSettings, *, left_s: Callable[[], float]
) -> CertificateReport:
    """Return the server's own certificate, trusted or not.  Raises as `check_tls`."""
    chain, _, _ = _handshake((host, port), host, settings, left_s)
    return _certificate(chain[0])


def _handshake(
    address: tuple[str, int], name: str, settings: TlsSettings, left_s: Callable[[], float]
) -> tuple[list[x509.Certificate], str, str]:
    """Return the chain that the server sends, the version and the cipher, without a check of the chain."""
    lenient = client_context(replace(settings, verifies_host_name=False))
    lenient.check_hostname, lenient.verify_mode = False, ssl.CERT_NONE
    with _connected(address, left_s) as sock:
        try:
            with wrap_socket(lenient, sock, name) as tls:
                chain = [x509.load_der_x509_certificate(der) for der in _chain(tls)]
                return chain, tls.version() or "", (tls.cipher() or ("",))[0]
        except (OSError, ValueError) as error:
            has_closed = isinstance(error, (ssl.SSLEOFError, ConnectionResetError))
            reason = "it closed the connection, as a listener without TLS does" if has_closed else _reason(error)
            raise ClusterUnreachable(f"{address_text(*address)} does not complete a TLS handshake: {reason}") from None


@contextlib.contextmanager
def _connected(address: tuple[str, int], left_s: Callable[[], float]) -> Iterator[socket.socket]:
    remaining_s = left_s()
    if remaining_s <= 0:
        raise ClusterUnreachable(f"{address_text(*address)} did not respond in time")
    try:
        sock = socket.create_connection(address, remaining_s)
    except OSError as error:
        raise ClusterUnreachable(f"cannot connect to {address_text(*address)}: {_reason(error)}") from None
    with sock:
        yield sock


def _chain(tls: ssl.SSLSocket) -> list[bytes]:
    """Return the certificates as the server sent them, DER encoded."""
    if hasattr(tls, "get_unverified_chain"):  # Python 3.13
        return list(tls.get_unverified_chain())
    unverified = tls._sslobj.get_unverified_chain()  # type: ignore[attr-defined]  # noqa: SLF001 - as above
    return [ssl.PEM_cert_to_DER_cert(entry.public_bytes()) for entry in unverified or []]


def _accepts(address: tuple[str, int], name: str, version: str, left_s: Callable[[], float]) -> bool:
    """Return whether the server completes a handshake in this version."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if version in OLD_VERSIONS:
        context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.options &= ~(ssl.OP_NO_TLSv1 | ssl.OP_NO_TLSv1_1)
        context.minimum_version = context.maximum_version = VERSIONS[version]
    hello = ssl.MemoryBIO()
    handshake = context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    with _connected(address, left_s) as sock:
        try:
            if version == "TLSv1.3":
                wrap_socket(context, sock, name).close()
                return True
            # A handshake may also fail because the server requires a certificate, so its ServerHello is enough.
            sock.sendall(hello.read())
            response = sock.recv(_SERVER_HELLO_BYTES, socket.MSG_WAITALL)
        except OSError:
            return False
    return response[:1] == _HANDSHAKE_RECORD and response[-2:] == VERSIONS[version].to_bytes(2)


def _problem(address: tuple[str, int], name: str, context: ssl.SSLContext, left_s: Callable[[], float]) -> str | None:
    with _connected(address, left_s) as sock:
        try:
            with wrap_socket(context, sock, name):
                return None
        except OSError as error:
            return _reason(error)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    if isinstance(error, TimeoutError):
        return "no response in time"
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).lower().replace("_", " ")
    return getattr(error, "strerror", None) or str(error)


def _certificate(certificate: x509.Certificate) -> CertificateReport:
    return CertificateReport(
        subject=name_text(certificate.subject),
        issuer=name_text(certificate.issuer),
        names=_alternative_names(certificate),
        valid_from=certificate.not_valid_before_utc,
        valid_until=certificate.not_valid_after_utc,
        key=_key_text(certificate),
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
    )


def _alternative_names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return (
        *names.get_values_for_type(x509.DNSName),
        *(str(address) for address in names.get_values_for_type(x509.IPAddress)),
    )


def _key_text(certificate: x509.Certificate) -> str:
    """Return the algorithm and size of the public key, such as `EC 256`; the size is left out where the algorithm
    implies it.
    """
    try:
        key = certificate.public_key()
    except (UnsupportedAlgorithm, ValueError):
        return "unknown"
    for kind, name in _KEY_NAMES.items():
        if isinstance(key, kind):
            return f"{name} {size}" if (size := getattr(key, "key_size", None)) else name
    return "unknown"
