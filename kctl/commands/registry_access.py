"""The schema registry that options and properties name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kctl.client.registry.client import RegistryClient
from kctl.client.registry.codecs import Encoder
from kctl.client.registry.settings import RegistrySettings, registry_settings
from kctl.errors import UsageError
from kctl.integers import INT32_MAX, parse_integer

_SUBJECT_VERSION = re.compile(r"(.+?)(?::([0-9]+|latest))?", re.DOTALL)


def registry_client(properties: Mapping[str, str], url: str | None) -> RegistryClient:
    """The registry of the option or the properties.  Raises UsageError and ConfigError."""
    return RegistryClient(registry_of(properties, url))


def registry_of(properties: Mapping[str, str], url: str | None) -> RegistrySettings:
    """The settings of the registry of the option or the properties.  Raises UsageError and ConfigError."""
    settings = registry_settings(properties, url)
    if settings is None:
        raise UsageError("no schema registry: use --schema-registry URL, or schema.registry.url in --command-config")
    return settings


def encoder_of(client: RegistryClient, text: str, default_subject: str, option: str) -> Encoder:
    """The encoder of `latest`, `id:17`, `SUBJECT` or `SUBJECT:3`, each with `#MESSAGE` for a message type of Protobuf.

    Raises UsageError, SchemaError and RegistryUnreachable.
    """
    name, marker, type_name = text.partition("#")
    if marker and not type_name:
        raise UsageError(f"{option}: the name of the message type is missing after #")
    if name.startswith("id:"):
        schema = client.by_id(parse_integer(name[3:], f"the id of {option}", high=INT32_MAX))
    elif name in {"", "latest"}:
        schema = client.of_subject(default_subject, "latest")
    else:
        found = _SUBJECT_VERSION.fullmatch(name)
        assert found is not None
        schema = client.of_subject(found[1], found[2] or "latest")
    return Encoder(schema, type_name or None)
