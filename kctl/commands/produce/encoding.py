"""How keys and values are encoded by the schemas of a registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.client.registry.codecs import Encoder
    from kctl.commands.invocation import Invocation


class Encoding(NamedTuple):
    """How keys and values are encoded; None for as they are."""

    key: Encoder | None = None
    value: Encoder | None = None

    @staticmethod
    def encoded(encoder: Encoder | None, data: bytes | None) -> bytes | None:
        """Null stays null: a tombstone has no schema.  Raises SchemaError."""
        return data if encoder is None or data is None else encoder.encode(data)


def encoding_of(
    run: Invocation, topic: str, key_schema: str | None, value_schema: str | None, registry_url: str | None
) -> Encoding:
    """Raises UsageError, ConfigError, SchemaError and RegistryUnreachable."""
    if key_schema is None and value_schema is None:
        if registry_url is not None:
            raise UsageError("--schema-registry requires --value-schema or --key-schema")
        return Encoding()
    from kctl.commands.registry_access import encoder_of, registry_client  # noqa: PLC0415 - imports ssl

    client = registry_client(run.client_properties(), registry_url)
    return Encoding(
        None if key_schema is None else encoder_of(client, key_schema, f"{topic}-key", "--key-schema"),
        None if value_schema is None else encoder_of(client, value_schema, f"{topic}-value", "--value-schema"),
    )
