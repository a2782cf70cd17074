"""The SASL listeners of a broker: their mechanisms, from its properties, and the channels of their connections.

Invalid properties stop the broker at start: a mechanism without users or keys, or one that is not supported.
Properties that change while the broker runs apply to new connections; an invalid change is logged, and the old
properties stay in use.  Kafka 2.8 accepts the change and applies it after a restart.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from kctl.config.broker import BrokerConfig
from kctl.config.dynamic import ConfigView
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
from kctl.server.sasl.gssapi import Acceptor, GssapiExchange
from kctl.server.sasl.json_web_keys import JsonWebKeys, Refresh
from kctl.server.sasl.oauth import OAuthBearerExchange, TokenRules, TokenVerifier
from kctl.server.sasl.scram_credentials import ScramCredentials
from kctl.server.tokens.token_cache import TokenCache

log = logging.getLogger(__name__)

SUPPORTED = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


@dataclass(frozen=True, slots=True)
class Secrets:
    """The stores with which mechanisms verify clients."""

    credentials: ScramCredentials
    tokens: TokenCache


class Channels:
    """Opens the channel of each accepted connection, by its listener.  Call `start` before and `close` at the end."""

    def __init__(self, configs: ConfigView, *, handle: Handle, clock: Clock, secrets: Secrets) -> None:
        """Raises ConfigError."""
        self._configs = configs
        self._handle = handle
        self._clock = clock
        self._secrets = secrets
        self._frame_bytes_max = configs.current.socket_request_max_bytes
        self._keys: dict[_KeySource, JsonWebKeys] = {}
        self._used: set[_KeySource] = set()
        """The sources of keys of the listeners that were built last."""
        self._properties = _sasl_properties(configs.properties)
        self._changing: asyncio.Task[None] | None = None
        self._listeners = self._build()

    def open(self, peer: Peer) -> Channel:
        """The channel of a connection; implements network.channel.OpenChannel."""
        listener = self._listeners.get(peer.listener)
        if listener is None:
            return DirectChannel(self._handle, peer, frame_bytes_max=self._frame_bytes_max)
        return SaslChannel(listener, self._handle, peer)

    async def start(self) -> None:
        """Applies the dynamic properties, reads the keys for tokens and follows changes.  Raises ConfigError."""
        self._properties = _sasl_properties(self._configs.properties)
        self._listeners = self._build()
        await self._use_keys(dict(self._keys))
        self._configs.subscribe(self._changed)

    async def close(self) -> None:
        """Stops reading keys."""
        if self._changing is not None:
            self._changing.cancel()
            await asyncio.gather(self._changing, return_exceptions=True)
        for keys in self._keys.values():
            await keys.close()

    def _changed(self) -> None:
        if self._listeners and self._changing is None and self._is_stale():
            self._changing = asyncio.create_task(self._change(), name="sasl-properties")

    def _is_stale(self) -> bool:
        return _sasl_properties(self._configs.properties) != self._properties

    async def _change(self) -> None:
        try:
            while self._is_stale():
                self._properties = _sasl_properties(self._configs.properties)
                known = dict(self._keys)
                try:
                    listeners = self._build()
                    await self._use_keys({source: keys for source, keys in self._keys.items() if source not in known})
                except ConfigError as error:
                    self._keys = known
                    log.error("cannot change the SASL properties, the old ones stay in use error=%s", error)
                    continue
                self._listeners = listeners
                log.info("changed SASL properties listeners=%s", ",".join(sorted(listeners)))
        finally:
            self._changing = None

    async def _use_keys(self, added: Mapping[_KeySource, JsonWebKeys]) -> None:
        """Reads new keys and stops reading those that no listener uses.  Raises ConfigError; nothing is read then."""
        started: list[JsonWebKeys] = []
        try:
            for source, keys in added.items():
                if source in self._used:
                    await keys.start()
                    started.append(keys)
        except ConfigError:
            for keys in started:
                await keys.close()
            raise
        for source in self._keys.keys() - self._used:
            await self._keys.pop(source).close()

    def _build(self) -> dict[str, SaslListener]:
        """The SASL listeners of the current properties.  Raises ConfigError."""
        self._used = set()
        config, properties = self._configs.current, self._configs.properties
        return {
            endpoint.listener: self._sasl_listener(config, properties, endpoint, self._clock, self._secrets)
            for endpoint in listener_endpoints(config)
            if endpoint.security_protocol.startswith("SASL_")
        }

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
        refresh = Refresh(
            interval_ms=values.get(prefix + "jwks.endpoint.refresh.ms"),
            retry_ms=values.get(prefix + "jwks.endpoint.retry.backoff.ms"),
            retry_ms_max=values.get(prefix + "jwks.endpoint.retry.backoff.max.ms"),
        )
        source = _KeySource(url, refresh, values.listener)
        keys = self._keys.get(source)
        if keys is None:
            keys = self._keys[source] = JsonWebKeys(url, refresh, clock.monotonic_ms)
        self._used.add(source)
        rules = TokenRules(
            issuer=values.get(prefix + "expected.issuer"),
            audiences=values.get(prefix + "expected.audience"),
            clock_skew_s=values.get(prefix + "clock.skew.seconds"),
            subject_claim=values.get(prefix + "sub.claim.name"),
            scope_claim=values.get(prefix + "scope.claim.name"),
        )
        return TokenVerifier(keys, rules, clock.now_ms)


class _KeySource(NamedTuple):
    """Where the keys of a listener come from; unchanged keys are not read again when other properties change."""

    url: str
    refresh: Refresh
    listener: str


def _sasl_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of which listeners are built."""
    return {
        name: value
        for name, value in properties.items()
        if "sasl." in name or name.endswith("connections.max.reauth.ms")
    }


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
