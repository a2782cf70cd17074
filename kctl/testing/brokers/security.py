"""Secured listeners of brokers for tests: properties of the broker, certificates, users and tokens.

A broker has them in the folder `security` of its data folder, as `kctl broker start --secure` makes them; the key that
signs tokens is beside them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kctl.config.properties import format_properties

USER = "admin"
"""The user, who is a super user where an authorizer is set."""
SCRAM = "SCRAM-SHA-512"
TOKEN_LIFETIME_S = 3_600
_ADMIN_TOKEN_LIFETIME_S = 10 * 366 * 86_400
_KEY_ID = "test"
_ALGORITHM = "ES256"
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LOOPBACK = "127.0.0.1"


class _Listener(NamedTuple):
    protocol: str
    mechanism: str | None = None
    needs_certificate: bool = False
    """Whether clients must have a certificate."""


_LISTENERS: Mapping[str, _Listener] = {
    "tls": _Listener("SSL"),
    "mutual-tls": _Listener("SSL", needs_certificate=True),
    "scram": _Listener("SASL_PLAINTEXT", SCRAM),
    "scram-tls": _Listener("SASL_SSL", SCRAM),
    "plain": _Listener("SASL_PLAINTEXT", "PLAIN"),
    "plain-tls": _Listener("SASL_SSL", "PLAIN"),
    "oauthbearer": _Listener("SASL_PLAINTEXT", "OAUTHBEARER"),
    "oauthbearer-tls": _Listener("SASL_SSL", "OAUTHBEARER"),
}
SECURITIES = tuple(_LISTENERS)
"""The values of the argument `security`."""


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """The secured listener of a broker; several brokers of a cluster have the same."""

    folder: Path
    """With certificates, password and keys."""
    protocol: str = "SASL_SSL"
    """The security protocol, which is the name of the listener."""
    mechanism: str | None = SCRAM
    """The SASL mechanism of clients; None without SASL."""
    needs_certificate: bool = False
    """Whether clients must have a certificate."""
    has_plaintext: bool = False
    """Whether there is a listener without security, before this one."""

    @property
    def uses_tls(self) -> bool:
        """Whether clients must trust the authority."""
        return self.protocol in {"SSL", "SASL_SSL"}

    @property
    def password(self) -> str:
        """The password of the user, of the trust store and of the client's key store."""
        return (self.folder / "admin.password").read_text(encoding="utf-8").strip()

    def listeners(self, port: int) -> str:
        """Return the property; `port` is that of the first listener, the other has a free one."""
        if not self.has_plaintext:
            return f"{self.protocol}://{LOOPBACK}:{port}"
        return f"PLAINTEXT://{LOOPBACK}:{port},{self.protocol}://{LOOPBACK}:0"

    def prepare(self) -> None:
        """Make certificates, password and keys, if they are not there.  Raises KctlError."""
        from kctl.server.process.secure_setup import prepare  # noqa: PLC0415 - imports cryptography

        setup = prepare(self.folder)
        if self.needs_certificate:
            setup.write_client_certificate()
        if self.mechanism == "OAUTHBEARER" and not self._key.exists():
            self._make_key()

    def broker_properties(self) -> dict[str, str]:
        """Return the properties of a broker that is started with --secure, without `listeners`."""
        properties = {
            "authorizer.class.name": "",
            "security.inter.broker.protocol": "PLAINTEXT" if self.has_plaintext else self.protocol,
        }
        if self.needs_certificate:
            properties["ssl.client.auth"] = "required"
        if self.mechanism is None:
            return properties
        prefix = f"listener.name.{self.protocol.lower()}."
        # Brokers use SCRAM among themselves.
        properties["sasl.enabled.mechanisms"] = ",".join(dict.fromkeys([self.mechanism, SCRAM]))
        properties["sasl.mechanism.inter.broker.protocol"] = SCRAM
        properties[f"{prefix}{SCRAM.lower()}.sasl.jaas.config"] = self._scram_jaas()
        if self.mechanism == "PLAIN":
            properties[f"{prefix}plain.sasl.jaas.config"] = f'{self._plain_jaas()[:-1]} user_{USER}="{self.password}";'
        if self.mechanism == "OAUTHBEARER":
            properties["sasl.oauthbearer.jwks.endpoint.url"] = self._key_set.absolute().as_uri()
            properties[f"{prefix}oauthbearer.sasl.jaas.config"] = f"{_OAUTH_MODULE} required;"
        return properties

    def write_broker_properties(self) -> Path:
        """Write `broker_properties` into a private file, since some are passwords, and return its path."""
        path = self.folder / "test.properties"
        write_private(path, format_properties(self.broker_properties()))
        return path

    def client_jaas(self) -> str | None:
        """Return the JAAS configuration of a client that is the user; None without SASL."""
        if self.mechanism == "OAUTHBEARER":
            return f"{_OAUTH_MODULE} required;"
        if self.mechanism == "PLAIN":
            return self._plain_jaas()
        return None if self.mechanism is None else self._scram_jaas()

    def admin_token_file(self) -> Path:
        """Return the path of a file with a token of the user, written if it is not there."""
        path = self.folder / "admin.token"
        if not path.exists():
            write_private(path, self.sign_token(USER, lifetime_s=_ADMIN_TOKEN_LIFETIME_S))
        return path

    def sign_token(
        self,
        subject: str,
        *,
        lifetime_s: float = TOKEN_LIFETIME_S,
        claims: Mapping[str, Any] | None = None,
    ) -> str:
        """Return a JSON Web Token that the broker accepts; `claims` replace its own, and None leaves one out."""
        import jwt  # noqa: PLC0415 - with its cryptography it takes 50 ms to import

        now_s = int(time.time())
        whole = {"sub": subject, "iat": now_s, "exp": int(now_s + lifetime_s), **(claims or {})}
        whole = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(whole, self._key.read_bytes(), algorithm=_ALGORITHM, headers={"kid": _KEY_ID})

    def _scram_jaas(self) -> str:
        from kctl.server.process.secure_setup import scram_jaas  # noqa: PLC0415 - as above

        return scram_jaas(self.password)

    def _plain_jaas(self) -> str:
        return f'{_PLAIN_MODULE} required username="{USER}" password="{self.password}";'

    @property
    def _key(self) -> Path:
        return self.folder / "tokens.key"

    @property
    def _key_set(self) -> Path:
        return self.folder / "tokens.jwks"

    def _make_key(self) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
            Encoding,
            NoEncryption,
            PrivateFormat,
        )
        from jwt.algorithms import ECAlgorithm  # noqa: PLC0415

        key = ec.generate_private_key(ec.SECP256R1())
        public = {**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": _KEY_ID, "use": "sig", "alg": _ALGORITHM}
        write_private(self._key_set, json.dumps({"keys": [public]}))
        write_private(self._key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


def listener_security(name: str, folder: Path, *, has_plaintext: bool) -> ListenerSecurity:
    """Return the security that an argument of this name means.  Raises ValueError."""
    listener = _LISTENERS.get(name)
    if listener is None:
        raise ValueError(f"security must be one of {', '.join(SECURITIES)}, not {name!r}")
    return ListenerSecurity(folder, *listener, has_plaintext=has_plaintext)


def write_private(path: Path, text: str) -> None:
    """Replace a file; nobody else can read it."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
