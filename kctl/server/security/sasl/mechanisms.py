"""The verifiers of clients, one per SASL mechanism, created from the properties of a listener.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from kctl.config.listeners import listener_property, mechanism_property_name
from kctl.errors import ConfigError
from kctl.security.jaas import JaasError, parse_jaas
from kctl.security.principals import KerberosNameError, Rule, parse_rules
from kctl.security.sasl import plain_users
from kctl.security.scram import Mechanism
from kctl.server.security.sasl.exchanges import OpenExchange, PlainExchange, ScramExchange
from kctl.server.security.sasl.gssapi import Acceptor, GssapiExchange
from kctl.server.security.sasl.json_web_keys import JsonWebKeys, Refresh
from kctl.server.security.sasl.oauth import OAuthBearerExchange, TokenRules, TokenVerifier
from kctl.server.security.sasl.scram_credentials import ScramCredentials
from kctl.server.security.tokens.token_cache import TokenCache
from kctl.system.environment import Clock

SUPPORTED = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


@dataclass(frozen=True, slots=True)
class Secrets:
    """The stores with which mechanisms verify clients."""

    credentials: ScramCredentials
    tokens: TokenCache


def enabled_mechanisms(properties: Mapping[str, str], listener: str) -> tuple[str, ...]:
    """Return the mechanisms that the properties enable on a listener.  Raises ConfigError if there are none."""
    names: Any = listener_property(properties, "sasl.enabled.mechanisms", listener=listener)
    if not names:
        raise ConfigError("sasl.enabled.mechanisms", "", f"listener {listener} has no SASL mechanism")
    return tuple(names)


@dataclass(frozen=True, slots=True)
class MechanismProperties:
    """The properties of one mechanism of a listener."""

    properties: Mapping[str, str]
    listener: str
    mechanism: str

    def get(self, name: str) -> Any:
        """Return the parsed value.  Raises ConfigError."""
        return listener_property(self.properties, name, listener=self.listener, mechanism=self.mechanism)

    def jaas_options(self) -> tuple[str, Mapping[str, str]]:
        """Return the name of the mechanism's JAAS configuration, and its options.  Raises ConfigError."""
        name = mechanism_property_name("sasl.jaas.config", listener=self.listener, mechanism=self.mechanism)
        text = self.properties.get(name, "")
        try:
            module = parse_jaas(text)
        except JaasError as error:
            raise ConfigError(name, "[hidden]" if text else "", str(error)) from None
        if problem := module.problem_for(self.mechanism):
            raise ConfigError(name, "[hidden]", problem)
        return name, module.options

    def kerberos_rules(self) -> tuple[Rule, ...]:
        """Return the rules that name Kerberos principals.  Raises ConfigError."""
        name = "sasl.kerberos.principal.to.local.rules"
        try:
            return parse_rules(self.get(name))
        except KerberosNameError as error:
            raise ConfigError(name, "", str(error)) from None

    def plain_users(self) -> Mapping[str, str]:
        """Return the passwords by user of the mechanism's JAAS configuration.  Raises ConfigError."""
        name, options = self.jaas_options()
        users = plain_users(options)
        if not users:
            raise ConfigError(name, "[hidden]", 'has no users; add options such as user_alice="password"')
        return users


class KeySource(NamedTuple):
    """Where the keys of a listener come from; unchanged keys are not read again when other properties change."""

    url: str
    refresh: Refresh
    listener: str


class Mechanisms:
    """Opens mechanisms, and keeps the keys with which OAUTHBEARER verifies tokens."""

    def __init__(self, clock: Clock, secrets: Secrets, accepts_unsigned_tokens: Callable[[str], bool]) -> None:
        """`accepts_unsigned_tokens` returns whether a listener does, in a broker of a test."""
        self._clock = clock
        self._accepts_unsigned_tokens = accepts_unsigned_tokens
        self._secrets = secrets
        self.keys: dict[KeySource, JsonWebKeys] = {}
        """All keys that an opened mechanism uses; the owner starts and stops reading them."""

    def open(self, properties: MechanismProperties) -> OpenExchange:
        """Return a function that begins an exchange of the mechanism.  Raises ConfigError."""
        scram = Mechanism.named(properties.mechanism)
        if scram is not None:
            credentials, tokens = self._secrets.credentials, self._secrets.tokens
            return partial(ScramExchange, scram, credentials=credentials, tokens=tokens, now_ms=self._clock.now_ms)
        if properties.mechanism == "PLAIN":
            return partial(PlainExchange, properties.plain_users())
        if properties.mechanism == "GSSAPI":
            name, options = properties.jaas_options()
            return partial(GssapiExchange, Acceptor(options, properties.kerberos_rules(), name))
        if properties.mechanism == "OAUTHBEARER":
            return partial(OAuthBearerExchange, self._token_verifier(properties), self._clock.now_ms)
        raise ConfigError(
            "sasl.enabled.mechanisms",
            properties.mechanism,
            f"listener {properties.listener} can use {', '.join(SUPPORTED)}; "
            "set sasl.enabled.mechanisms to some of them",
        )

    def keep_keys(self, listeners: Iterable[str]) -> list[JsonWebKeys]:
        """Remove the keys of other listeners than these, and return them."""
        kept = set(listeners)
        return [self.keys.pop(source) for source in list(self.keys) if source.listener not in kept]

    def _token_verifier(self, properties: MechanismProperties) -> TokenVerifier:
        prefix = "sasl.oauthbearer."
        url = properties.get(prefix + "jwks.endpoint.url")
        if not url:
            raise ConfigError(
                prefix + "jwks.endpoint.url",
                "",
                f"listener {properties.listener} cannot verify the signatures of OAUTHBEARER tokens without keys; "
                "set it to file:///path or https://host/path of a JSON Web Key Set",
            )
        refresh = Refresh(
            interval_ms=properties.get(prefix + "jwks.endpoint.refresh.ms"),
            retry_ms=properties.get(prefix + "jwks.endpoint.retry.backoff.ms"),
            retry_ms_max=properties.get(prefix + "jwks.endpoint.retry.backoff.max.ms"),
        )
        rules = TokenRules(
            issuer=properties.get(prefix + "expected.issuer"),
            audiences=properties.get(prefix + "expected.audience"),
            clock_skew_s=properties.get(prefix + "clock.skew.seconds"),
            subject_claim=properties.get(prefix + "sub.claim.name"),
            scope_claim=properties.get(prefix + "scope.claim.name"),
        )
        source = KeySource(url, refresh, properties.listener)
        keys = self.keys.get(source)
        if keys is None:
            keys = self.keys[source] = JsonWebKeys(url, refresh, self._clock.monotonic_ms)
        accepts_unsigned = partial(self._accepts_unsigned_tokens, properties.listener)
        return TokenVerifier(keys, rules, self._clock.now_ms, accepts_unsigned)
