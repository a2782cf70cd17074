"""Names of TLS cipher suites: Java uses those of IANA, OpenSSL its own for TLS 1.2."""

from __future__ import annotations

import re
from collections.abc import Iterable

_IANA = re.compile(r"TLS_([A-Z0-9_]+)_WITH_([A-Z0-9_]+)\Z")


def tls_1_3_suites(names: Iterable[str]) -> frozenset[str]:
    """The suites of TLS 1.3 among the names; OpenSSL uses IANA's names for them."""
    return frozenset(name for name in names if name.startswith("TLS_") and "_WITH_" not in name)


def openssl_ciphers(names: Iterable[str]) -> tuple[str, ...]:
    """The suites of TLS 1.2 among the names, as OpenSSL calls them; names of OpenSSL are kept."""
    return tuple(_openssl_name(name) for name in names if not tls_1_3_suites((name,)))


def _openssl_name(name: str) -> str:
    """ECDHE-RSA-AES128-GCM-SHA256 for TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    parts = _IANA.match(name)
    if parts is None:
        return name
    exchange, cipher = parts.groups()
    cipher = re.sub(r"AES_(128|256)", r"AES\1", cipher.replace("_CBC_", "_"))
    if "CHACHA20" in cipher:
        cipher = "CHACHA20_POLY1305"
    prefix = "" if exchange == "RSA" else exchange + "_"
    return (prefix + cipher).replace("_", "-")
