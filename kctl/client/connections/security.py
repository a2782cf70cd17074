"""Secures the connections of one client: TLS contexts and SASL exchanges, from Kafka's client properties.

Imported only when `security.protocol` is not PLAINTEXT: commands without TLS and SASL start without ssl and hashlib.

Kafka: CommonClientConfigs, SslConfigs, SaslConfigs (2.8, and the OAuth properties of 3.1 to 4.1).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kctl.client.connections.login.sasl_settings import SaslSettings, sasl_settings
from kctl.client.settings import PLAINTEXT
from kctl.errors import AuthenticationFailed, ConfigError
from kctl.security.sasl_client import OAuthBearerClient, PlainClient, SaslClient

if TYPE_CHECKING:
    import ssl

    from kctl.client.connections.login.tokens import TokenSource
    from kctl.security.tls import TlsSettings

PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_RENEW_PERCENT_MIN = 85
_RENEW_PERCENT_SPREAD = 10
"""A client authenticates again after 85 to 94 % of the session lifetime; random, so that clients do not all do it at
once.  Kafka: SaslClientAuthenticator.ReauthInfo."""


class ClientSecurity:
    """Security of one client's connections.  Shared by them; can be pickled; its repr contains no secret.

    Owner: the thread or event loop of the client; `sasl_client` may run in another thread.
    """

    def __init__(self, protocol: str, *, tls: TlsSettings | None, sasl: SaslSettings | None) -> None:
        self.protocol = protocol
        self._tls = tls
        self._sasl = sasl
        self._context: ssl.SSLContext | None = None
        self._tokens: TokenSource | None = None

    @classmethod
    def of(cls, protocol: str, properties: Mapping[str, str]) -> ClientSecurity:
        """Return the security of client properties.  Raises ConfigError with the name of the property.

        `protocol` is the value of security.protocol.  Reads the stores of TLS, so that a wrong file or password is
        reported before the first connection.
        """
        if protocol.upper() not in PROTOCOLS:
            raise ConfigError("security.protocol", protocol, f"must be one of {', '.join(PROTOCOLS)}")
        protocol = protocol.upper()
        tls = None
        if protocol.endswith("SSL"):
            from kctl.security.tls import TlsSettings  # noqa: PLC0415 - imports ssl

            tls = TlsSettings.of(properties)
        security = cls(protocol, tls=tls, sasl=sasl_settings(properties) if protocol.startswith("SASL") else None)
        security.tls_context()
        return security

    def __repr__(self) -> str:
        return f"ClientSecurity({self.protocol!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.protocol, self._tls, self._sasl)

    @property
    def uses_tls(self) -> bool:
        """True for SSL and SASL_SSL."""
        return self._tls is not None

    @property
    def uses_sasl(self) -> bool:
        """True for SASL_PLAINTEXT and SASL_SSL."""
        return self._sasl is not None

    @property
    def mechanism(self) -> str:
        """The SASL mechanism; "" without SASL."""
        return self._sasl.mechanism if self._sasl is not None else ""

    @property
    def secret_files(self) -> tuple[str, ...]:
        """Paths of files with private keys and tokens."""
        keystore = self._tls.keystore_location if self._tls is not None else None
        return (*([keystore] if keystore else []), *(self._sasl.files if self._sasl is not None else ()))

    def with_contents(self) -> ClientSecurity:
        """Return the same security with the contents of TLS stores in place of their paths, for processes on other
        machines.

        Files of tokens and of Kerberos keep their paths: they are renewed on each machine.  Raises ConfigError.
        """
        if self._tls is None:
            return self
        from kctl.security.tls import with_contents  # noqa: PLC0415 - imports ssl

        return ClientSecurity(self.protocol, tls=with_contents(self._tls), sasl=self._sasl)

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the context for TLS, created at the first call; None without TLS.  Raises ConfigError."""
        if self._context is None and self._tls is not None:
            from kctl.security.tls import client_context  # noqa: PLC0415 - imports ssl

            self._context = client_context(self._tls)
        return self._context

    def sasl_client(self, host: str, timeout_ms: int) -> SaslClient:
        """Return the client's side of one authentication with the broker at `host`.

        May block up to `timeout_ms`: a token may have to be fetched.  Raises AuthenticationFailed.
        """
        sasl = self._sasl
        assert sasl is not None
        if sasl.mechanism == "PLAIN":
            return PlainClient(sasl.user, sasl.password)
        if sasl.mechanism == "OAUTHBEARER":
            return self._oauth_client(sasl, timeout_ms)
        if sasl.mechanism == "GSSAPI":
            return _gssapi_client(sasl, host)
        return _scram_client(sasl)

    def renew_after_ms(self, lifetime_ms: int) -> int:
        """Return the time after which to authenticate again in a session of this lifetime.  KIP-368."""
        return lifetime_ms * (_RENEW_PERCENT_MIN + os.urandom(1)[0] % _RENEW_PERCENT_SPREAD) // 100

    def _oauth_client(self, sasl: SaslSettings, timeout_ms: int) -> SaslClient:
        from kctl.client.connections.login.tokens import TokenSource  # noqa: PLC0415 - imports an HTTP client

        assert sasl.oauth is not None
        if self._tokens is None:
            self._tokens = TokenSource(sasl.oauth)
        return OAuthBearerClient(self._tokens.token(timeout_ms), sasl.oauth.extensions)


def client_security(properties: Mapping[str, str]) -> ClientSecurity | None:
    """Return the security of client properties; None for PLAINTEXT.  Raises ConfigError."""
    protocol = properties.get("security.protocol", PLAINTEXT).strip()
    return None if protocol.upper() == PLAINTEXT else ClientSecurity.of(protocol, properties)


def _restored(protocol: str, tls: TlsSettings | None, sasl: SaslSettings | None) -> ClientSecurity:
    return ClientSecurity(protocol, tls=tls, sasl=sasl)


def _scram_client(sasl: SaslSettings) -> SaslClient:
    import secrets  # noqa: PLC0415 - imports hashlib

    from kctl.security.scram import (  # noqa: PLC0415 - imports hashlib
        NONCE_BYTES,
        Mechanism,
        ScramClient,
    )

    return ScramClient(
        Mechanism[sasl.mechanism.replace("-", "_")],
        user=sasl.user,
        password=sasl.password,
        nonce=secrets.token_urlsafe(NONCE_BYTES),
        is_token=sasl.is_token,
    )


def _gssapi_client(sasl: SaslSettings, host: str) -> SaslClient:
    from kctl.client.connections.login.tokens import gssapi_client  # noqa: PLC0415 - imports an optional package

    try:
        return gssapi_client(sasl, host)
    except ImportError:
        raise AuthenticationFailed("GSSAPI needs the package gssapi: pip install 'kctl-kafka[kerberos]'") from None
