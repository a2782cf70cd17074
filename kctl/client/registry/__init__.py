"""Schema registries with the HTTP API of Confluent's: schemas by id or subject, and records in its wire format.

Applications import the names in `__all__` from here (docs/client.md); they are loaded when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kctl.client.registry.deserializers import AvroDeserializer, JsonDeserializer, ProtobufDeserializer
    from kctl.client.registry.registry import SchemaRegistry
    from kctl.client.registry.schema import Reference, RegisteredSchema, RegistryUnreachable, Schema, SchemaError
    from kctl.client.registry.serializers import (
        AvroSerializer,
        JsonSerializer,
        ProtobufSerializer,
        record_name,
        topic_name,
        topic_record_name,
    )

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "JsonDeserializer",
    "JsonSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Reference",
    "RegisteredSchema",
    "RegistryUnreachable",
    "Schema",
    "SchemaError",
    "SchemaRegistry",
    "record_name",
    "topic_name",
    "topic_record_name",
]

_MODULES = {
    "AvroDeserializer": "deserializers",
    "AvroSerializer": "serializers",
    "JsonDeserializer": "deserializers",
    "JsonSerializer": "serializers",
    "ProtobufDeserializer": "deserializers",
    "ProtobufSerializer": "serializers",
    "Reference": "schema",
    "RegisteredSchema": "schema",
    "RegistryUnreachable": "schema",
    "Schema": "schema",
    "SchemaError": "schema",
    "SchemaRegistry": "registry",
    "record_name": "serializers",
    "topic_name": "serializers",
    "topic_record_name": "serializers",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - commands without a registry do not need it

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
