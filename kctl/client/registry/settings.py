"""The client properties of a schema registry, under the names of Confluent's clients.

    schema.registry.url                             http://127.0.0.1:8081, or several joined by commas
    schema.registry.basic.auth.credentials.source   USER_INFO or URL
    schema.registry.basic.auth.user.info            USER:PASSWORD
    schema.registry.bearer.auth.token               a token (bearer.auth.credentials.source=STATIC_TOKEN)
    schema.registry.ssl.truststore.location         and the other properties of TLS

The prefix of the authentication properties may be omitted.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from kctl.errors import ConfigError

PREFIX = "schema.registry."
_URL = f"{PREFIX}url"
_URLS_MAX = 16


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where the registry is and how to authenticate; its repr contains no secret."""

    urls: tuple[str, ...]
    """Without user and password."""
    authorizations: tuple[str | None, ...] = field(repr=False)
    """The header Authorization for each of the URLs; None for none."""
    tls: Mapping[str, str] = field(repr=False)
    """The properties of TLS, without prefix."""


def registry_settings(properties: Mapping[str, str], url: str | None = None) -> RegistrySettings | None:
    """The settings; `url` replaces that of the properties.  None without any.  Raises ConfigError."""
    given = url if url is not None else properties.get(_URL, "")
    parts = [_split(one.strip()) for one in given.split(",") if one.strip()]
    if not parts:
        return None
    if len(parts) > _URLS_MAX:
        raise ConfigError(_URL, f"{len(parts)} URLs", f"has more than {_URLS_MAX} URLs")
    return RegistrySettings(
        tuple(f"{one.scheme}://{_host(one)}{one.path.rstrip('/')}" for one in parts),
        tuple(_authorization(properties, one) for one in parts),
        {
            name.removeprefix(PREFIX): value
            for name, value in properties.items()
            if name.startswith(f"{PREFIX}ssl.") or name == f"{PREFIX}security.providers"
        },
    )


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and not parts.query and not parts.fragment
        _ = parts.port
    except ValueError:
        is_valid = False
    if not is_valid or not url.isascii() or not url.isprintable() or " " in url:
        # The value is not shown, because it may contain a password.
        raise ConfigError(_URL, "[hidden]", "must be http://HOST:PORT or https://HOST:PORT")
    return parts


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _authorization(properties: Mapping[str, str], parts: SplitResult) -> str | None:
    token = _property(properties, "bearer.auth.token")
    source = _property(properties, "bearer.auth.credentials.source")
    if source not in {None, "STATIC_TOKEN"}:
        raise ConfigError("bearer.auth.credentials.source", str(source), "must be STATIC_TOKEN")
    if token is not None or source is not None:
        return f"Bearer {_header_value(token, 'bearer.auth.token')}"
    info = _property(properties, "basic.auth.user.info")
    source = _property(properties, "basic.auth.credentials.source")
    if source not in {None, "USER_INFO", "URL"}:
        raise ConfigError("basic.auth.credentials.source", str(source), "must be USER_INFO or URL")
    if source == "USER_INFO" or (source is None and info is not None):
        return _basic(_header_value(info, "basic.auth.user.info"))
    if parts.username is None:
        return None
    return _basic(f"{unquote(parts.username)}:{unquote(parts.password or '')}")


def _basic(user_info: str) -> str:
    return f"Basic {base64.b64encode(user_info.encode()).decode()}"


def _property(properties: Mapping[str, str], name: str) -> str | None:
    value = properties.get(f"{PREFIX}{name}", properties.get(name, "")).strip()
    return value or None


def _header_value(value: str | None, name: str) -> str:
    if value is None or not value.isprintable() or (name.endswith("token") and not value.isascii()):
        raise ConfigError(f"{PREFIX}{name}", "[hidden]", "is missing or contains characters that are not valid")
    return value
