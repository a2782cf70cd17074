"""What clients need to connect to a broker or a cluster, in the form of each client library."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from kctl.testing.brokers.security import TOKEN_LIFETIME_S, USER, ListenerSecurity

_OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_PYTHON_PROVIDERS = ("kafka.net.sasl.oauth", "kafka.sasl.oauth", "kafka.oauth")
"""The module of AbstractTokenProvider in kafka-python 3, 2.1 and 2.0."""


class ClientSettings:
    """The forms of the address and the security of a broker or a cluster; all are those of the user `admin`."""

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of the first listener."""
        raise NotImplementedError

    @property
    def secure_bootstrap_servers(self) -> str:
        """HOST:PORT of the secured listener; the same as `bootstrap_servers` if there is no other."""
        raise NotImplementedError

    @property
    def listener_security(self) -> ListenerSecurity | None:
        """The secured listener; None without one."""
        raise NotImplementedError

    @property
    def client_properties(self) -> dict[str, str]:
        """Kafka's properties, with certificates in PEM files (Kafka 2.7): for kctl's clients and for Java."""
        return self._properties(is_pem=True)

    @property
    def java_properties(self) -> dict[str, str]:
        """Kafka's properties, with certificates in PKCS12 files: for all Java clients."""
        return self._properties(is_pem=False)

    @property
    def librdkafka_properties(self) -> dict[str, Any]:
        """The properties of confluent-kafka and other clients of librdkafka."""
        security = self.listener_security
        if security is None:
            return {"bootstrap.servers": self.bootstrap_servers}
        properties: dict[str, Any] = {
            "bootstrap.servers": self.secure_bootstrap_servers,
            "security.protocol": security.protocol,
        }
        if security.mechanism is not None:
            properties["sasl.mechanism"] = security.mechanism
        if security.mechanism == "OAUTHBEARER":
            properties["oauth_cb"] = lambda _: (self.sign_token(USER), time.time() + TOKEN_LIFETIME_S)
        elif security.mechanism is not None:
            properties |= {"sasl.username": USER, "sasl.password": security.password}
        if security.uses_tls:
            properties["ssl.ca.location"] = str(self.ca_file)
        if security.needs_certificate:
            properties |= dict.fromkeys(("ssl.certificate.location", "ssl.key.location"), str(self.certificate_file))
        return properties

    @property
    def kafka_python_arguments(self) -> dict[str, Any]:
        """The keyword arguments of kafka-python's classes."""
        arguments = self._python_arguments()
        security = self.listener_security
        if security is None:
            return arguments
        if security.mechanism == "OAUTHBEARER":
            arguments["sasl_oauth_token_provider"] = _provider_of_kafka_python(security)
        if security.uses_tls:
            arguments["ssl_cafile"] = str(self.ca_file)
        if security.needs_certificate:
            arguments |= dict.fromkeys(("ssl_certfile", "ssl_keyfile"), str(self.certificate_file))
        return arguments

    @property
    def aiokafka_arguments(self) -> dict[str, Any]:
        """The keyword arguments of aiokafka's classes."""
        arguments = self._python_arguments()
        security = self.listener_security
        if security is None:
            return arguments
        if security.mechanism == "OAUTHBEARER":
            arguments["sasl_oauth_token_provider"] = _provider_of_aiokafka(security)
        if security.uses_tls:
            import ssl  # noqa: PLC0415 - secured brokers only

            arguments["ssl_context"] = context = ssl.create_default_context(cafile=self.ca_file)
            if security.needs_certificate:
                context.load_cert_chain(self.certificate_file)
        return arguments

    @property
    def username(self) -> str:
        """The user of a secured listener."""
        self._secured()
        return USER

    @property
    def password(self) -> str:
        """The password of this user, of the trust store and of the client's key store."""
        return self._secured().password

    @property
    def ca_file(self) -> Path:
        """The certificate of the authority, in PEM."""
        return self._secured().folder / "ca.pem"

    @property
    def certificate_file(self) -> Path:
        """With `security="mutual-tls"`: key and certificate of the client, in PEM."""
        return self._secured().folder / "client.pem"

    def sign_token(
        self, subject: str, *, lifetime_s: float = TOKEN_LIFETIME_S, claims: Mapping[str, Any] | None = None
    ) -> str:
        """Return a JSON Web Token for OAUTHBEARER with which a client is `User:SUBJECT`.

        `claims` are added, or replace those of the token; None leaves one out.  A negative lifetime gives a token that
        has expired.  Raises ValueError for brokers without OAUTHBEARER.
        """
        security = self.listener_security
        if security is None or security.mechanism != "OAUTHBEARER":
            raise ValueError('only brokers with security="oauthbearer" or "oauthbearer-tls" have a key for tokens')
        return security.sign_token(subject, lifetime_s=lifetime_s, claims=claims)

    def _secured(self) -> ListenerSecurity:
        security = self.listener_security
        if security is None:
            raise ValueError("the broker has no secured listener: see the argument `security`")
        return security

    def _properties(self, *, is_pem: bool) -> dict[str, str]:
        security = self.listener_security
        if security is None:
            return {"bootstrap.servers": self.bootstrap_servers}
        properties = {"bootstrap.servers": self.secure_bootstrap_servers, "security.protocol": security.protocol}
        if security.mechanism is not None:
            properties |= {"sasl.mechanism": security.mechanism, "sasl.jaas.config": security.client_jaas() or ""}
        if security.mechanism == "OAUTHBEARER":
            properties |= {
                "sasl.login.callback.handler.class": _OAUTH_HANDLER,
                "sasl.oauthbearer.token.endpoint.url": security.admin_token_file().absolute().as_uri(),
            }
        stores = {"truststore": "ca.pem"} if is_pem else {"truststore": "truststore.p12"}
        if security.needs_certificate:
            stores["keystore"] = "client.pem" if is_pem else "client.p12"
        for store, name in stores.items() if security.uses_tls else ():
            properties[f"ssl.{store}.type"] = "PEM" if is_pem else "PKCS12"
            properties[f"ssl.{store}.location"] = str(security.folder / name)
            if not is_pem:
                properties[f"ssl.{store}.password"] = security.password
        return properties

    def _python_arguments(self) -> dict[str, Any]:
        """Return what kafka-python and aiokafka call the same."""
        security = self.listener_security
        if security is None:
            return {"bootstrap_servers": self.bootstrap_servers}
        arguments: dict[str, Any] = {
            "bootstrap_servers": self.secure_bootstrap_servers,
            "security_protocol": security.protocol,
        }
        if security.mechanism is not None:
            arguments["sasl_mechanism"] = security.mechanism
        if security.mechanism not in {None, "OAUTHBEARER"}:
            arguments |= {"sasl_plain_username": USER, "sasl_plain_password": security.password}
        return arguments


def sign_token(
    broker: ClientSettings,
    subject: str,
    *,
    lifetime_s: float = TOKEN_LIFETIME_S,
    claims: Mapping[str, Any] | None = None,
) -> str:
    """Return a token for a broker or a cluster; see ClientSettings.sign_token."""
    return broker.sign_token(subject, lifetime_s=lifetime_s, claims=claims)


def _provider_of_kafka_python(security: ListenerSecurity) -> object:
    """Return an object of the class that kafka-python checks for, in its versions since 2.0."""
    for module in _PYTHON_PROVIDERS:
        try:
            base: Any = import_module(module).AbstractTokenProvider
        except ModuleNotFoundError:
            continue
        methods = {"token": lambda _: security.sign_token(USER)}
        return type("SignedTokens", (base,), methods)()
    raise ModuleNotFoundError("kafka-python 2.0 or newer is not installed")


def _provider_of_aiokafka(security: ListenerSecurity) -> object:
    async def token(_: object) -> str:
        return security.sign_token(USER)

    base: Any = import_module("aiokafka.abc").AbstractTokenProvider
    return type("SignedTokens", (base,), {"token": token})()
