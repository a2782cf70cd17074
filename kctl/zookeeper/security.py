"""TLS to ZooKeeper and ACLs of znodes, from Kafka's `zookeeper.*` properties.

Not supported: SASL to ZooKeeper (DIGEST-MD5 and Kerberos, which `jaas_file` refuses), and revocation lists and OCSP.

Kafka: KafkaServer.zkClientConfigFromKafkaConfig, ZkData.defaultAcls (2.8), KIP-515.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kctl.errors import ConfigError
from kctl.system.user_files import read_regular

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
        """Return the access to a znode that this session creates.  `path` is relative to the chroot."""
        if not self.sets_acls or path == SHARED_PATH:
            return Access.OPEN
        return Access.PRIVATE if path.startswith(SENSITIVE_ROOTS) else Access.READABLE


def zookeeper_security(properties: Mapping[str, str]) -> ZooKeeperSecurity | None:
    """Return the security of the properties `zookeeper.ssl...` and `zookeeper.set.acl`; None without both.

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


# Refuses a JAAS file for SASL to ZooKeeper, which kctl does not support (docs/decisions/zookeeper-authentication.md).
#
# Apache Kafka's scripts pass Java's options in KAFKA_OPTS. A broker that ignored the file would connect without an
# identity, where its operator expects one.
#
# Kafka: JaasUtils.isZkSaslEnabled (2.8).


_VARIABLE = "KAFKA_OPTS"
_FILE = "java.security.auth.login.config"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def refuse_client_section(environment: Mapping[str, str]) -> None:
    """Raise ConfigError if KAFKA_OPTS names a JAAS file with a section for ZooKeeper, or one that cannot be read.

    `-Dzookeeper.sasl.client=false` in KAFKA_OPTS switches SASL to ZooKeeper off, as for Apache Kafka.
    """
    options = _system_properties(environment.get(_VARIABLE, ""))
    path = options.get(_FILE, "")
    if not path or options.get("zookeeper.sasl.client", "true").lower() == "false":
        return
    section = options.get("zookeeper.sasl.clientconfig", "Client")
    try:
        text = read_regular(path).decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(
            _FILE, path, f"cannot be read ({error.strerror}); correct or remove it in {_VARIABLE}"
        ) from None
    if re.search(rf"(?:^|[\s;}}]){re.escape(section)}\s*\{{", _COMMENT.sub(" ", text)):
        raise ConfigError(
            _FILE,
            path,
            f"its section {section} is for SASL to ZooKeeper, which kctl does not support; use a certificate "
            "(zookeeper.ssl.client.enable=true and zookeeper.ssl.keystore.location), or connect without an identity "
            f"by -Dzookeeper.sasl.client=false in {_VARIABLE}",
        )


def _system_properties(options: str) -> dict[str, str]:
    """Return the options -DNAME=VALUE.  Raises ConfigError if the text is malformed."""
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise ConfigError(_VARIABLE, "[hidden]", f"cannot be read: {error}") from None
    pairs = (word.removeprefix("-D").partition("=") for word in words if word.startswith("-D"))
    return {name: value for name, _, value in pairs}
