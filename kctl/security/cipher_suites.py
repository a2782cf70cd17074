"""TLS cipher suites: Java's names are those of IANA, OpenSSL has its own for TLS 1.2; what OpenSSL can offer."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable

_IANA = re.compile(r"TLS_([A-Z0-9_]+)_WITH_([A-Z0-9_]+)\Z")
_SIGNAL = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
"""In Java's lists of suites, but no suite: OpenSSL sends it by itself (RFC 5746)."""


def suites(names: Iterable[str]) -> tuple[str, ...]:
    """The names that stand for suites."""
    return tuple(name for name in names if name != _SIGNAL)


def tls_1_3_suites(names: Iterable[str]) -> frozenset[str]:
    """The suites of TLS 1.3 among the names; OpenSSL uses IANA's names for them."""
    return frozenset(name for name in suites(names) if name.startswith("TLS_") and "_WITH_" not in name)


def openssl_ciphers(names: Iterable[str]) -> tuple[str, ...]:
    """The suites of TLS 1.2 among the names, as OpenSSL calls them; names of OpenSSL are kept."""
    return tuple(_openssl_name(name) for name in suites(names) if not tls_1_3_suites((name,)))


def unknown_suites(names: Iterable[str]) -> tuple[str, ...]:
    """The names of suites that OpenSSL cannot offer to a server.

    OpenSSL itself ignores names that it does not know, and takes patterns such as `HIGH` and commands such as
    `@SECLEVEL=0` for names.  Java refuses a list with an unknown name as well.
    """
    return tuple(name for name in suites(names) if not _is_offered(name))


def can_agree(server: ssl.SSLContext, version: ssl.TLSVersion, ciphers: Iterable[str]) -> bool:
    """Whether a client that offers these ciphers, in OpenSSL's names, and this version gets a connection.

    A server cannot use a suite for a key of another kind than its own, and none with a key exchange that has no
    parameters (DHE).  The handshake is made in memory; neither side checks the other's certificate.
    """
    client = _unverified(version)
    client.set_ciphers(":".join(ciphers))
    mode, server.verify_mode = server.verify_mode, ssl.CERT_NONE
    try:
        return _handshake(server, client)
    finally:
        server.verify_mode = mode


def _openssl_name(name: str) -> str:
    """ECDHE-RSA-AES128-GCM-SHA256 for TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    parts = _IANA.match(name)
    if parts is None:
        return name
    exchange, cipher = parts.groups()
    cipher = re.sub(r"AES_(128|256)", r"AES\1", cipher.replace("_CBC_", "_")).replace("CCM_8", "CCM8")
    if "CHACHA20" in cipher:
        cipher = "CHACHA20_POLY1305"
    prefix = "" if exchange == "RSA" else exchange + "_"
    return (prefix + cipher).replace("_", "-")


def _is_offered(name: str) -> bool:
    context = _unverified(None)
    if tls_1_3_suites((name,)):
        return name in _names(context)
    try:
        context.set_ciphers(_openssl_name(name))
    except ssl.SSLError:
        return False
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return _openssl_name(name) in _names(context) and _starts(context)


def _names(context: ssl.SSLContext) -> frozenset[str]:
    return frozenset(entry["name"] for entry in context.get_ciphers())


def _unverified(version: ssl.TLSVersion | None) -> ssl.SSLContext:
    """A client's context for connections in memory, which never leave the process."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def _starts(context: ssl.SSLContext) -> bool:
    """Whether a client has any suite to offer: the security level of OpenSSL forbids some that it knows."""
    try:
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO()).do_handshake()
    except ssl.SSLWantReadError:
        return True
    except ssl.SSLError:
        return False
    return False


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while sides:
        waiting = []
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting.append(side)
            except ssl.SSLError:
                return False
        if len(waiting) == len(sides) and not (to_server.pending or to_client.pending):
            return False
        sides = waiting
    return True
