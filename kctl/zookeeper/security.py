"""TLS to ZooKeeper and ACLs of znodes, from Kafka's `zookeeper.*` properties.

Not supported: SASL to ZooKeeper (DIGEST-MD5 and Kerberos, which `jaas_file` refuses), and revocation lists and OCSP.

Kafka: KafkaServer.zkClientConfigFromKafkaConfig, ZkData.defaultAcls (2.8), KIP-515.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kctl.errors import ConfigError

if TYPE_CHECKING:
    import ssl

SENSITIVE_ROOTS = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Znodes at and below these paths contain credentials, and secrets of brokers."""
SHARED_PATH = "/consumers"
"""Consumers of Kafka before 0.9 write below it, so that all clients may."""

_PREFIX = "zookeeper."
_ENABLE = "zookeeper.ssl.client.enable"
_SET_ACL = "zookeeper.set.acl"
_ALGORITHM = "ssl.endpoint.identification.algorithm"


class Access(Enum):
    """Who may use a new znode."""

    OPEN = "open"
    """All clients may change it."""
    READABLE = "readable"
    """Brokers may change it, all clients may read it."""
    PRIVATE = "private"
    """Only brokers may read and change it."""


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """Security of a session.  The ACLs name the identity that the session has: that of its certificate."""

    tls: ssl.SSLContext | None = None
    sets_acls: bool = False

    def access_of(self, path: str) -> Access:
        """The access to a znode that this session creates.  `path` is relative to the chroot."""
        if not self.sets_acls or path == SHARED_PATH:
            return Access.OPEN
        return Access.PRIVATE if path.startswith(SENSITIVE_ROOTS) else Access.READABLE


def zookeeper_security(properties: Mapping[str, str]) -> ZooKeeperSecurity | None:
    """The security of the properties `zookeeper.ssl...` and `zookeeper.set.acl`; None without both.

    Reads the stores.  Raises ConfigError with the name of the property, without secrets.
    """
    uses_tls, sets_acls = (_is_true(properties, name) for name in (_ENABLE, _SET_ACL))
    if sets_acls and not (uses_tls and properties.get("zookeeper.ssl.keystore.location", "").strip()):
        reason = f"needs an identity: set {_ENABLE}=true and zookeeper.ssl.keystore.location"
        raise ConfigError(_SET_ACL, "true", reason)
    if not uses_tls:
        return None
    for name in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if _is_true(properties, name):
            raise ConfigError(name, "true", "revocation is not checked by kctl; remove it")
    return ZooKeeperSecurity(_context(properties), sets_acls)


def tls_problem(error: OSError, host: str) -> str:
    """Explains a failed TLS handshake with the server at `host`."""
    if "PROTOCOL" in (getattr(error, "reason", None) or ""):
        return f"ZooKeeper at {host} has no TLS version in common; check zookeeper.ssl.enabled.protocols"
    reason = getattr(error, "verify_message", None) or getattr(error, "reason", None) or error.strerror or str(error)
    return (
        f"TLS with ZooKeeper at {host} failed: {reason}; check that zookeeper.connect has its TLS port, and "
        "zookeeper.ssl.truststore.location and zookeeper.ssl.keystore.location"
    )


def _context(properties: Mapping[str, str]) -> ssl.SSLContext:
    from kctl.security.tls import TlsSettings, client_context  # noqa: PLC0415 - imports ssl

    own = {name.removeprefix(_PREFIX): text for name, text in properties.items() if name.startswith("zookeeper.ssl.")}
    own.setdefault(_ALGORITHM, "https")
    try:
        return client_context(TlsSettings.of(own))
    except ConfigError as error:
        raise ConfigError(_PREFIX + error.name, "[hidden]", error.reason) from None


def _is_true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"
