"""The SASL listeners of a broker: their mechanisms, from its properties, and the channels of their connections.

What can be known at start is refused there: a mechanism without users, keys or support in this program.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kctl.config.broker import BrokerConfig
from kctl.config.listener_overrides import listener_property, mechanism_property_name
from kctl.config.listeners import listener_endpoints
from kctl.environment import Clock
from kctl.errors import ConfigError
from kctl.model import Endpoint
from kctl.security.jaas import JaasError, parse_jaas
from kctl.security.kerberos_names import KerberosNameError, Rule, parse_rules
from kctl.security.plain import plain_users
from kctl.security.scram_credentials import Mechanism
from kctl.server.network.channel import Channel, DirectChannel, Handle
from kctl.server.requests.context import Peer
from kctl.server.sasl.channel import SaslChannel, SaslListener
from kctl.server.sasl.exchanges import OpenExchange, PlainExchange, ScramExchange
from kctl.server.sasl.failure_log import FailureLog
from kctl.server.sasl.gssapi import Acceptor, GssapiExchange
from kctl.server.sasl.json_web_keys import JsonWebKeys, Refresh
from kctl.server.sasl.oauth import OAuthBearerExchange, TokenRules, TokenVerifier
from kctl.server.sasl.scram_credentials import ScramCredentials
from kctl.server.tokens.token_cache import TokenCache

SUPPORTED = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


@dataclass(frozen=True, slots=True)
class Secrets:
    """What mechanisms verify clients with."""

    credentials: ScramCredentials
    tokens: TokenCache


class Channels:
    """Opens the channel of each accepted connection, by its listener.  Call `start` before and `close` at the end."""

    def __init__(
        self, config: BrokerConfig, properties: Mapping[str, str], *, handle: Handle, clock: Clock, secrets: Secrets
    ) -> None:
        """`properties` are those of server.properties with overrides.  Raises ConfigError."""
        self._handle = handle
        self._frame_bytes_max = config.socket_request_max_bytes
        self._keys: list[JsonWebKeys] = []
        self._listeners = {
            endpoint.listener: self._sasl_listener(config, properties, endpoint, clock, secrets)
            for endpoint in listener_endpoints(config)
            if endpoint.security_protocol.startswith("SASL_")
        }

    def open(self, peer: Peer) -> Channel:
        """The channel of a connection; implements network.channel.OpenChannel."""
        listener = self._listeners.get(peer.listener)
        if listener is None:
            return DirectChannel(self._handle, peer, frame_bytes_max=self._frame_bytes_max)
        return SaslChannel(listener, self._handle, peer)

    async def start(self) -> None:
        """Reads the keys for tokens.  Raises ConfigError."""
        for keys in self._keys:
            await keys.start()

    async def close(self) -> None:
        """Stops reading keys."""
        for keys in self._keys:
            await keys.close()

    def _sasl_listener(
        self, config: BrokerConfig, properties: Mapping[str, str], endpoint: Endpoint, clock: Clock, secrets: Secrets
    ) -> SaslListener:
        value = partial(listener_property, properties, listener=endpoint.listener)
        mechanisms: Any = value("sasl.enabled.mechanisms")
        if not mechanisms:
            raise ConfigError("sasl.enabled.mechanisms", "", f"listener {endpoint.listener} has no SASL mechanism")
        opened: dict[str, OpenExchange] = {}
        max_reauth_ms: dict[str, Any] = {}
        for mechanism in mechanisms:
            of_mechanism = _Values(properties, endpoint.listener, mechanism)
            opened[mechanism] = self._mechanism(of_mechanism, clock, secrets)
            max_reauth_ms[mechanism] = of_mechanism.get("connections.max.reauth.ms")
        receive_bytes_max: Any = value("sasl.server.max.receive.size")
        return SaslListener(
            name=endpoint.listener,
            security_protocol=endpoint.security_protocol,
            mechanisms=opened,
            max_reauth_ms=max_reauth_ms,
            unauthenticated_bytes_max=min(receive_bytes_max, config.socket_request_max_bytes),
            request_bytes_max=config.socket_request_max_bytes,
            failure_delay_ms=config.connection_failed_authentication_delay_ms,
            failures=FailureLog(clock.monotonic_ms),
            monotonic_ms=clock.monotonic_ms,
        )

    def _mechanism(self, values: _Values, clock: Clock, secrets: Secrets) -> OpenExchange:
        scram = Mechanism.named(values.mechanism)
        if scram is not None:
            return partial(
                ScramExchange, scram, credentials=secrets.credentials, tokens=secrets.tokens, now_ms=clock.now_ms
            )
        if values.mechanism == "PLAIN":
            return partial(PlainExchange, values.plain_users())
        if values.mechanism == "GSSAPI":
            name, options = values.jaas_options()
            return partial(GssapiExchange, Acceptor(options, values.kerberos_rules(), name))
        if values.mechanism == "OAUTHBEARER":
            return partial(OAuthBearerExchange, self._token_verifier(values, clock), clock.now_ms)
        raise ConfigError(
            "sasl.enabled.mechanisms",
            values.mechanism,
            f"listener {values.listener} can use {', '.join(SUPPORTED)}; set sasl.enabled.mechanisms to some of them",
        )

    def _token_verifier(self, values: _Values, clock: Clock) -> TokenVerifier:
        prefix = "sasl.oauthbearer."
        url = values.get(prefix + "jwks.endpoint.url")
        if not url:
            raise ConfigError(
                prefix + "jwks.endpoint.url",
                "",
                f"listener {values.listener} cannot verify the signatures of OAUTHBEARER tokens without keys; "
                "set it to file:///path or https://host/path of a JSON Web Key Set",
            )
        keys = JsonWebKeys(
            url,
            Refresh(
                interval_ms=values.get(prefix + "jwks.endpoint.refresh.ms"),
                retry_ms=values.get(prefix + "jwks.endpoint.retry.backoff.ms"),
                retry_ms_max=values.get(prefix + "jwks.endpoint.retry.backoff.max.ms"),
            ),
            clock.monotonic_ms,
        )
        self._keys.append(keys)
        rules = TokenRules(
            issuer=values.get(prefix + "expected.issuer"),
            audiences=values.get(prefix + "expected.audience"),
            clock_skew_s=values.get(prefix + "clock.skew.seconds"),
            subject_claim=values.get(prefix + "sub.claim.name"),
            scope_claim=values.get(prefix + "scope.claim.name"),
        )
        return TokenVerifier(keys, rules, clock.now_ms)


@dataclass(frozen=True, slots=True)
class _Values:
    """The properties of one mechanism of a listener."""

    properties: Mapping[str, str]
    listener: str
    mechanism: str

    def get(self, name: str) -> Any:
        """The parsed value.  Raises ConfigError."""
        return listener_property(self.properties, name, listener=self.listener, mechanism=self.mechanism)

    def jaas_options(self) -> tuple[str, Mapping[str, str]]:
        """The name of the mechanism's JAAS configuration, and its options.  Raises ConfigError."""
        name = mechanism_property_name("sasl.jaas.config", listener=self.listener, mechanism=self.mechanism)
        text = self.properties.get(name, "")
        try:
            return name, parse_jaas(text).options
        except JaasError as error:
            raise ConfigError(name, "[hidden]" if text else "", str(error)) from None

    def kerberos_rules(self) -> tuple[Rule, ...]:
        """The rules that name Kerberos principals.  Raises ConfigError."""
        name = "sasl.kerberos.principal.to.local.rules"
        try:
            return parse_rules(self.get(name))
        except KerberosNameError as error:
            raise ConfigError(name, "", str(error)) from None

    def plain_users(self) -> Mapping[str, str]:
        """The passwords by user of the mechanism's JAAS configuration.  Raises ConfigError."""
        name, options = self.jaas_options()
        users = plain_users(options)
        if not users:
            raise ConfigError(name, "[hidden]", 'has no users; add options such as user_alice="password"')
        return users
