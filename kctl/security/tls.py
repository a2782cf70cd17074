"""TLS settings from Kafka's `ssl.*` properties, and the ssl contexts made of them.

The caller resolves prefixes such as `listener.name.internal.`.  Differences from Java: the format of a store is
recognised by its content; TLS 1.0 and 1.1 are never enabled (RFC 8996).

Kafka: SslConfigs, DefaultSslEngineFactory (2.8), KIP-651.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kctl.errors import ConfigError
from kctl.system.operating_system import private_file
from kctl.system.user_files import read_regular

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from kctl.security.keystores import KeyPair
from kctl.limits import Subject, bound

KEY_STORE_FILE_BYTES_MAX = bound(
    Subject.CONNECTIONS,
    "size of a key store or trust store",
    4 << 20,
    "bytes",
    on_excess="it is refused",
)


# TLS cipher suites: Java's names are those of IANA, OpenSSL has its own for TLS 1.2; what OpenSSL can offer.


_IANA = re.compile(r"TLS_([A-Z0-9_]+)_WITH_([A-Z0-9_]+)\Z")
_SIGNAL = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
"""In Java's lists of suites, but no suite: OpenSSL sends it by itself (RFC 5746)."""


def suites(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that stand for suites."""
    return tuple(name for name in names if name != _SIGNAL)


def tls_1_3_suites(names: Iterable[str]) -> frozenset[str]:
    """Return the suites of TLS 1.3 among the names; OpenSSL uses IANA's names for them."""
    return frozenset(name for name in suites(names) if name.startswith("TLS_") and "_WITH_" not in name)


def openssl_ciphers(names: Iterable[str]) -> tuple[str, ...]:
    """Return the suites of TLS 1.2 among the names, as OpenSSL calls them; names of OpenSSL are kept."""
    return tuple(_openssl_name(name) for name in suites(names) if not tls_1_3_suites((name,)))


def unknown_suites(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of suites that OpenSSL cannot offer to a server.

    OpenSSL itself ignores names that it does not know, and takes patterns such as `HIGH` and commands such as
    `@SECLEVEL=0` for names.  Java refuses a list with an unknown name as well.
    """
    return tuple(name for name in suites(names) if not _is_offered(name))


def can_agree(server: ssl.SSLContext, version: ssl.TLSVersion, ciphers: Iterable[str]) -> bool:
    """Return whether a client that offers these ciphers, in OpenSSL's names, and this version gets a connection.

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
    """Return a client's context for connections in memory, which never leave the process."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def _starts(context: ssl.SSLContext) -> bool:
    """Return whether a client has any suite to offer: the security level of OpenSSL forbids some that it knows."""
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


_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_OLD_VERSIONS = frozenset({"SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_STORE_TYPES = ("JKS", "PKCS12", "PEM")
_SERVER_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2: forward secrecy and authenticated encryption; OpenSSL's default also has CBC suites."""
_GROUP = "prime256v1"
"""The group for the key exchange, P-256: mandatory in TLS 1.3 (RFC 8446, section 9.1)."""
HIDDEN = "[hidden]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The `ssl.*` properties of a listener or of a client.  Secrets are not part of the repr."""

    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    """TLSv1.2, TLSv1.3 or both."""
    cipher_suites: tuple[str, ...] = ()
    """Names as in Java (IANA) or OpenSSL; empty for the defaults."""
    client_auth: str = "none"
    """none, requested or required."""
    verifies_host_name: bool = True
    """Whether a client compares the server's certificate with the host that it connected to."""
    keystore_location: str | None = None
    keystore_password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    keystore_certificate_chain: str | None = field(default=None, repr=False)
    keystore_key: str | None = field(default=None, repr=False)
    truststore_location: str | None = None
    truststore_password: str | None = field(default=None, repr=False)
    truststore_certificates: str | None = field(default=None, repr=False)
    principal_mapping_rules: str = "DEFAULT"

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> TlsSettings:
        """Return the settings of properties; the names that are not `ssl.*` are ignored.

        Raises ConfigError for invalid values and for combinations that Kafka refuses.
        """
        given = {name: text.strip() for name, text in properties.items() if name.startswith("ssl.") and text.strip()}
        for name in ("ssl.keystore.type", "ssl.truststore.type"):
            if given.get(name, "JKS").upper() not in _STORE_TYPES:
                raise ConfigError(name, given[name], f"is not supported: use {', '.join(_STORE_TYPES)}")
        _check_key_store(given)
        _check_trust_store(given)
        return cls(
            enabled_protocols=_enabled_protocols(given),
            cipher_suites=_list(given.get("ssl.cipher.suites", "")),
            client_auth=_client_auth(given.get("ssl.client.auth", "none")),
            verifies_host_name=_verifies_host_name(properties.get("ssl.endpoint.identification.algorithm", "https")),
            keystore_location=given.get("ssl.keystore.location"),
            keystore_password=given.get("ssl.keystore.password"),
            key_password=given.get("ssl.key.password"),
            keystore_certificate_chain=given.get("ssl.keystore.certificate.chain"),
            keystore_key=given.get("ssl.keystore.key"),
            truststore_location=given.get("ssl.truststore.location"),
            truststore_password=given.get("ssl.truststore.password"),
            truststore_certificates=given.get("ssl.truststore.certificates"),
            principal_mapping_rules=given.get("ssl.principal.mapping.rules", "DEFAULT"),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the stores; a change of their content needs a new context."""
        return tuple(path for path in (self.keystore_location, self.truststore_location) if path is not None)

    @property
    def has_key(self) -> bool:
        """Whether a key and a certificate are configured."""
        return self.keystore_location is not None or self.keystore_key is not None

    @property
    def has_trust(self) -> bool:
        """Whether trusted certificates are configured; without them a client uses those of the system."""
        return self.truststore_location is not None or self.truststore_certificates is not None


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return a context for accepted connections.  Raises ConfigError."""
    if not settings.has_key:
        raise ConfigError(
            "ssl.keystore.location", "", "a TLS listener needs a key and a certificate: set ssl.keystore.location"
        )
    if settings.client_auth != "none" and not settings.has_trust:
        raise ConfigError(
            "ssl.client.auth",
            settings.client_auth,
            "would admit every certificate that the system trusts: set ssl.truststore.location",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    context.set_ciphers(_SERVER_CIPHERS)
    # One group, because Python's ssl cannot set a list.  OpenSSL's default has finite-field groups as well, which cost
    # the broker up to 160 ms for each connection that selects them (CVE-2002-20001).
    context.set_ecdh_curve(_GROUP)
    _configure(context, settings)
    _check_agreement(context, settings)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return a context for outgoing connections, which are always verified.  Raises ConfigError.

    The caller passes `server_hostname`: the host as the user or the cluster named it, never the result of a reverse
    look-up (CVE-2026-24281).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.verifies_host_name
    context.verify_mode = ssl.CERT_REQUIRED
    _configure(context, settings)
    if not settings.has_trust:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def store_problems(properties: Mapping[str, str]) -> list[ConfigError]:
    """Return what is wrong with the key store and with the trust store among `ssl.*` properties.

    `server_context` and `client_context` raise the first problem only.
    """
    problems = []
    for prefixes in (("ssl.keystore.", "ssl.key."), ("ssl.truststore.",)):
        own = {name: text for name, text in properties.items() if name.startswith(prefixes)}
        try:
            _configure(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), TlsSettings.of(own))
        except ConfigError as error:
            problems.append(error)
    return problems


def with_contents(settings: TlsSettings) -> TlsSettings:
    """Return the settings of a client with the contents of its stores as PEM texts in place of their paths.

    Processes on other machines can use them.  Raises ConfigError.
    """
    from kctl.security import keystores  # noqa: PLC0415 - only TLS needs `cryptography`

    if settings.keystore_location is not None and (pair := _key_pair(settings)) is not None:
        text = pair.pem().decode()
        settings = replace(
            settings,
            keystore_location=None,
            keystore_password=None,
            key_password=None,
            keystore_key=text,
            keystore_certificate_chain=text,
        )
    if settings.truststore_location is not None:
        settings = replace(
            settings,
            truststore_location=None,
            truststore_password=None,
            truststore_certificates=keystores.pem(_trusted(settings)),
        )
    return settings


def _configure(context: ssl.SSLContext, settings: TlsSettings) -> None:
    versions = [_VERSIONS[name] for name in _versions_with_ciphers(settings)]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if ciphers := openssl_ciphers(settings.cipher_suites):
        context.set_ciphers(":".join(ciphers))
    pair = _key_pair(settings)
    if pair is not None:
        _load_key_pair(context, settings, pair)
    if settings.has_trust:
        _load_trust(context, settings)


def _versions_with_ciphers(settings: TlsSettings) -> list[str]:
    """Return the enabled versions for which ssl.cipher.suites, if it is set, has a suite."""
    versions = list(settings.enabled_protocols)
    name, value = "ssl.cipher.suites", ",".join(settings.cipher_suites)
    if not settings.cipher_suites:
        return versions
    if unknown := unknown_suites(settings.cipher_suites):
        raise ConfigError(
            name,
            value,
            f"OpenSSL cannot offer {', '.join(unknown)}: correct or remove it, with the names of single suites",
        )
    newest = tls_1_3_suites(settings.cipher_suites)
    if "TLSv1.3" in versions:
        offered = {entry["name"] for entry in ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).get_ciphers()}
        if not newest:
            versions.remove("TLSv1.3")
        elif missing := {suite for suite in offered if suite.startswith("TLS_")} - newest:
            raise ConfigError(
                name,
                value,
                f"Python cannot leave out single suites of TLS 1.3: add {', '.join(sorted(missing))}, or set "
                "ssl.enabled.protocols=TLSv1.2",
            )
    if "TLSv1.2" in versions and not openssl_ciphers(settings.cipher_suites):
        versions.remove("TLSv1.2")
    if not versions:
        raise ConfigError(name, value, "has no suite for ssl.enabled.protocols: add one or remove the property")
    return versions


def _check_agreement(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Refuse suites that no client gets, however many of them it supports.  Raises ConfigError."""
    ciphers = openssl_ciphers(settings.cipher_suites)
    version = ssl.TLSVersion.TLSv1_2
    if ciphers and context.minimum_version == version and not can_agree(context, version, ciphers):
        raise ConfigError(
            "ssl.cipher.suites",
            ",".join(settings.cipher_suites),
            "the server cannot use its suites of TLS 1.2: name some with ECDHE and the kind of its key "
            "(ECDHE_RSA or ECDHE_ECDSA)",
        )


def _key_pair(settings: TlsSettings) -> KeyPair | None:
    from kctl.security import keystores  # noqa: PLC0415 - only TLS needs `cryptography`

    name, value = "ssl.keystore.location", settings.keystore_location or ""
    try:
        if settings.keystore_location is not None:
            return keystores.key_pair_of_store(
                _read(name, settings.keystore_location),
                store_password=settings.keystore_password,
                key_password=settings.key_password,
            )
        if settings.keystore_key is not None and settings.keystore_certificate_chain is not None:
            name, value = "ssl.keystore.certificate.chain", HIDDEN
            keystores.certificates_of_pem(settings.keystore_certificate_chain)
            name = "ssl.keystore.key"
            return keystores.key_pair_of_pem(
                certificates=settings.keystore_certificate_chain,
                key=settings.keystore_key,
                key_password=settings.key_password,
            )
    except keystores.KeyStoreError as error:
        raise ConfigError(name, value, str(error)) from None
    return None


def _load_key_pair(context: ssl.SSLContext, settings: TlsSettings, pair: KeyPair) -> None:
    name = "ssl.keystore.location" if settings.keystore_location is not None else "ssl.keystore.certificate.chain"
    value = settings.keystore_location or HIDDEN
    leaf, now = pair.certificates[0], datetime.now(UTC)
    if leaf.not_valid_after_utc < now:
        raise ConfigError(name, value, f"the certificate expired at {leaf.not_valid_after_utc}: renew it")
    if leaf.not_valid_before_utc > now:
        raise ConfigError(
            name, value, f"the certificate is valid from {leaf.not_valid_before_utc}: set the clock or renew it"
        )
    try:
        with private_file(pair.pem()) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise ConfigError(name, value, f"OpenSSL refuses it ({error.reason}): use a stronger key") from None


def _load_trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    from kctl.security import keystores  # noqa: PLC0415 - only TLS needs `cryptography`

    certificates = _trusted(settings)
    # As in Java, every certificate of the trust store is an anchor, including one that is signed by another.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=keystores.der(certificates))


def _trusted(settings: TlsSettings) -> tuple[Certificate, ...]:
    """Return the certificates of the trust store, at least one.  Raises ConfigError."""
    from kctl.security import keystores  # noqa: PLC0415 - only TLS needs `cryptography`

    name, value = "ssl.truststore.location", settings.truststore_location or ""
    try:
        if settings.truststore_location is not None:
            certificates = keystores.certificates_of_store(
                _read(name, settings.truststore_location), password=settings.truststore_password
            )
        else:
            name, value = "ssl.truststore.certificates", HIDDEN
            certificates = keystores.certificates_of_pem(settings.truststore_certificates or "")
    except keystores.KeyStoreError as error:
        raise ConfigError(name, value, str(error)) from None
    if not certificates:
        raise ConfigError(name, value, "has no certificate: add those of the authorities to trust")
    return certificates


def _read(name: str, path: str) -> bytes:
    try:
        data = read_regular(path)
    except OSError as error:
        raise ConfigError(
            name, path, f"cannot be read ({error.strerror or error}): correct the path or its permissions"
        ) from None
    if len(data) > KEY_STORE_FILE_BYTES_MAX:
        raise ConfigError(name, path, f"has more than {KEY_STORE_FILE_BYTES_MAX} bytes: correct the path")
    return data


def _list(text: str) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in text.split(",") if entry.strip())


def _enabled_protocols(given: Mapping[str, str]) -> tuple[str, ...]:
    name = "ssl.enabled.protocols"
    names = _list(given.get(name, "TLSv1.2,TLSv1.3"))
    unknown = set(names) - set(_VERSIONS) - _OLD_VERSIONS
    enabled = tuple(version for version in _VERSIONS if version in names)
    if unknown or not enabled:
        raise ConfigError(name, ",".join(names), "use TLSv1.2, TLSv1.3 or both")
    return enabled


def _client_auth(text: str) -> str:
    value = text.lower()
    if value not in _CLIENT_AUTH:
        raise ConfigError("ssl.client.auth", text, f"use {', '.join(_CLIENT_AUTH)}")
    return value


def _verifies_host_name(text: str) -> bool:
    value = text.strip().lower()
    if value not in {"", "https"}:
        raise ConfigError(
            "ssl.endpoint.identification.algorithm", text, "use https, or leave it empty to switch the check off"
        )
    return value == "https"


def _check_key_store(given: Mapping[str, str]) -> None:
    location, password = given.get("ssl.keystore.location"), given.get("ssl.keystore.password")
    key, chain = given.get("ssl.keystore.key"), given.get("ssl.keystore.certificate.chain")
    if location is not None and (key is not None or chain is not None):
        raise ConfigError("ssl.keystore.location", location, "ssl.keystore.key is also set: keep one of them")
    if key is not None and chain is None:
        raise ConfigError("ssl.keystore.key", HIDDEN, "has no certificate: set ssl.keystore.certificate.chain")
    if chain is not None and key is None:
        raise ConfigError("ssl.keystore.certificate.chain", HIDDEN, "has no key: set ssl.keystore.key")
    if location is None and password is not None:
        raise ConfigError("ssl.keystore.password", HIDDEN, "there is no key store: set ssl.keystore.location")


def _check_trust_store(given: Mapping[str, str]) -> None:
    location, certificates = given.get("ssl.truststore.location"), given.get("ssl.truststore.certificates")
    if location is not None and certificates is not None:
        raise ConfigError(
            "ssl.truststore.location", location, "ssl.truststore.certificates is also set: keep one of them"
        )
    if location is None and given.get("ssl.truststore.password") is not None:
        raise ConfigError("ssl.truststore.password", HIDDEN, "there is no trust store: set ssl.truststore.location")
