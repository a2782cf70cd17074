"""The `sasl.*` properties of a client as values: mechanism, credentials, and where a token comes from.

Kafka: SaslConfigs, JaasContext, OAuthBearerLoginCallbackHandler (2.8, and the properties of 3.1 to 4.1).

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kctl.errors import ConfigError, UsageError
from kctl.output.quantities import parse_integer
from kctl.security.jaas import MODULES, JaasError, LoginModule, parse_jaas

HIDDEN = "[hidden]"
"""Replaces a value in errors that may contain a secret."""
CONNECT_TIMEOUT_MS_DEFAULT = READ_TIMEOUT_MS_DEFAULT = 10_000

_JAAS = "sasl.jaas.config"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
REUSED_PART_DEFAULT = 0.8
_REUSED_PART = "sasl.login.refresh.window.factor"
_LOGIN_HANDLER = "sasl.login.callback.handler.class"
_UNSECURED = "OAuthBearerUnsecuredLoginCallbackHandler"
_LOGIN_HANDLERS = ("OAuthBearerLoginCallbackHandler", _UNSECURED)
_RETRIEVERS = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
_JAVA_CLASSES = ("sasl.client.callback.handler.class", "sasl.login.class")
_EXTENSION = "extension_"
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x20-\x7e\t]*")
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """The source of OAUTHBEARER tokens: a file, a token endpoint, or unsigned claims."""

    file: str | None = None
    url: str | None = None
    """Token endpoint for the grant of client credentials.  RFC 6749, section 4.4."""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    encodes_header: bool = False
    """Whether id and secret are URL-encoded in the Authorization header, as RFC 6749 requires and Kafka does not by
    default.
    """
    reused_part: float = REUSED_PART_DEFAULT
    """The part of its lifetime for which a fetched token is reused: sasl.login.refresh.window.factor."""
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS_DEFAULT
    read_timeout_ms: int = READ_TIMEOUT_MS_DEFAULT
    unsecured: Mapping[str, str] | None = None
    """Options `unsecuredLogin...` of the login module; None for a real token."""
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options `ssl.*` of the login module, for the token endpoint."""
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    """SASL extensions for the broker.  KIP-342."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """How a client authenticates."""

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    is_token: bool = False
    """Whether `user` is the id of a delegation token and `password` its HMAC.  KIP-48."""
    oauth: OAuthSettings | None = None
    service_name: str = ""
    """Kerberos service name of the brokers."""
    principal: str = ""
    """Kerberos principal of the client; empty for that of the ticket cache."""
    keytab: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of files with secrets."""
        paths = (self.keytab, self.oauth.file if self.oauth else None)
        return tuple(path for path in paths if path)


def sasl_settings(properties: Mapping[str, str]) -> SaslSettings:
    """Return the settings of client properties.  Raises ConfigError, whose text contains no secret."""
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip()
    if mechanism not in MODULES:
        raise ConfigError("sasl.mechanism", mechanism, f"must be one of {', '.join(MODULES)}")
    for name in _JAVA_CLASSES:
        if properties.get(name, "").strip():
            raise ConfigError(name, properties[name], "kctl loads no Java classes; remove it")
    module = _module(mechanism, properties.get(_JAAS, ""))
    options = module.options if module is not None else {}
    if mechanism == "OAUTHBEARER":
        return SaslSettings(mechanism=mechanism, oauth=_oauth(properties, options))
    if mechanism == "GSSAPI":
        return _kerberos(properties, options)
    if module is None:
        raise ConfigError(_JAAS, "", f"{mechanism} needs a {MODULES[mechanism]} with username and password")
    for name in ("username", "password"):
        if not options.get(name):
            raise ConfigError(_JAAS, HIDDEN, f"the option {name} of {module.simple_name} is missing")
        if "\0" in options[name]:
            raise ConfigError(_JAAS, HIDDEN, f"the option {name} contains a NUL character")
    return SaslSettings(
        mechanism=mechanism,
        user=options["username"],
        password=options["password"],
        is_token=mechanism != "PLAIN" and options.get("tokenauth", "").lower() == "true",
    )


def _module(mechanism: str, text: str) -> LoginModule | None:
    if not text.strip():
        return None
    try:
        module = parse_jaas(text)
    except JaasError as error:
        raise ConfigError(_JAAS, HIDDEN, str(error)) from None
    if problem := module.problem_for(mechanism):
        raise ConfigError(_JAAS, HIDDEN, problem)
    return module


def _kerberos(properties: Mapping[str, str], options: Mapping[str, str]) -> SaslSettings:
    service_name = properties.get("sasl.kerberos.service.name") or options.get("serviceName") or ""
    if not service_name:
        raise ConfigError("sasl.kerberos.service.name", "", "GSSAPI needs the service name of the brokers")
    return SaslSettings(
        mechanism="GSSAPI",
        service_name=service_name,
        principal=options.get("principal", ""),
        keytab=options.get("keyTab") if options.get("useKeyTab", "").lower() == "true" else None,
    )


def _oauth(properties: Mapping[str, str], options: Mapping[str, str]) -> OAuthSettings:
    handler = _class_name(properties, _LOGIN_HANDLER, _LOGIN_HANDLERS)
    _class_name(properties, "sasl.oauthbearer.jwt.retriever.class", _RETRIEVERS)
    extensions = _extensions(options)
    if handler == _UNSECURED:
        unsecured = {name: value for name, value in options.items() if name.startswith("unsecuredLogin")}
        if not unsecured.get("unsecuredLoginStringClaim_sub"):
            raise ConfigError(_JAAS, HIDDEN, "the option unsecuredLoginStringClaim_sub, the user name, is missing")
        return OAuthSettings(unsecured=unsecured, extensions=extensions)
    endpoint = properties.get(_ENDPOINT, "").strip()
    if not endpoint:
        reason = "OAUTHBEARER needs a token endpoint, or file:/path of a token"
        if any(name.startswith("unsecuredLogin") for name in options):
            reason += f"; for unsecured tokens set {_LOGIN_HANDLER} to {_UNSECURED}"
        raise ConfigError(_ENDPOINT, "", reason)
    url = urlsplit(endpoint)
    if url.scheme == "file":
        if not url.path or url.netloc not in ("", "localhost"):
            raise ConfigError(_ENDPOINT, endpoint, "is not a file on this machine, as in file:/run/secrets/token")
        return OAuthSettings(file=url.path, extensions=extensions)
    _check_url(endpoint)
    client_id = properties.get("sasl.oauthbearer.client.credentials.client.id") or options.get("clientId")
    secret = properties.get("sasl.oauthbearer.client.credentials.client.secret") or options.get("clientSecret")
    if not client_id or not secret:
        missing = "id" if not client_id else "secret"
        raise ConfigError(f"sasl.oauthbearer.client.credentials.client.{missing}", "", "the token endpoint needs it")
    return OAuthSettings(
        url=endpoint,
        client_id=client_id,
        client_secret=secret,
        scope=properties.get("sasl.oauthbearer.scope") or options.get("scope") or "",
        encodes_header=properties.get("sasl.oauthbearer.header.urlencode", "").lower() == "true",
        reused_part=_reused_part(properties),
        connect_timeout_ms=_milliseconds(properties, "sasl.login.connect.timeout.ms", CONNECT_TIMEOUT_MS_DEFAULT),
        read_timeout_ms=_milliseconds(properties, "sasl.login.read.timeout.ms", READ_TIMEOUT_MS_DEFAULT),
        tls={name: value for name, value in options.items() if name.startswith("ssl.")},
        extensions=extensions,
    )


def _reused_part(properties: Mapping[str, str]) -> float:
    text = properties.get(_REUSED_PART, "").strip()
    try:
        part = float(text or REUSED_PART_DEFAULT)
    except ValueError:
        part = 0.0
    if not 0.5 <= part <= 1.0:
        raise ConfigError(_REUSED_PART, text, "must be a number between 0.5 and 1.0")
    return part


def _check_url(endpoint: str) -> None:
    try:
        url = urlsplit(endpoint)
        host, _ = url.hostname, url.port
    except ValueError:
        host = None
    if host is None or url.scheme not in ("http", "https"):
        raise ConfigError(_ENDPOINT, HIDDEN, "is not an https: URL and not a file: URL")
    if url.username is not None or url.password is not None:
        raise ConfigError(_ENDPOINT, HIDDEN, "must not contain credentials; see sasl.oauthbearer.client.credentials")
    if url.scheme == "http" and host not in _LOOPBACK:
        raise ConfigError(_ENDPOINT, endpoint, "would send the client secret unencrypted; use https")


def _class_name(properties: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    """Return the class without its package, "" if the property is not set."""
    text = properties.get(name, "").strip()
    simple = text.rpartition(".")[2]
    if text and simple not in known:
        raise ConfigError(name, text, f"kctl loads no Java classes; it implements {' and '.join(known)}")
    return simple


def _extensions(options: Mapping[str, str]) -> dict[str, str]:
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
    }
    for name, value in extensions.items():
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
            raise ConfigError(_JAAS, HIDDEN, f"the option {_EXTENSION}{name} is not a SASL extension")
    return extensions


def _milliseconds(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, "").strip()
    if not text:
        return default
    try:
        return parse_integer(text, "a number of milliseconds", low=1)
    except UsageError as error:
        raise ConfigError(name, text, str(error)) from None
