"""Decodes and encodes records in Confluent's wire format, with the schemas of a registry."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kctl.client.registry.schema import RegistryUnreachable, Schema, SchemaError, header_of, split_header
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.client.registry.client import RegistryClient

RETRY_AFTER_S = 30.0
"""Time for which an unreachable registry is not tried again."""
_CODECS_MAX = 1_000
"""Schemas whose codecs are kept; others are created again."""


class Codec(Protocol):
    """Values of one schema."""

    kind: str
    """The type of the schema: AVRO, JSON or PROTOBUF."""

    def decode(self, payload: bytes) -> str:
        """JSON.  Raises SchemaError."""

    def encode(self, text: str) -> bytes:
        """Return the payload of a JSON text.  Raises SchemaError."""


class Decoded(NamedTuple):
    """A value of a record."""

    text: str
    """JSON."""
    schema_id: int
    """NO_ID if the schema is not from a registry."""


class DecodesValues(Protocol):
    """Decodes the keys or values of records."""

    def decode(self, data: bytes) -> Decoded:
        """Raise SchemaError and RegistryUnreachable."""


class EncodesValues(Protocol):
    """Encodes the keys or values of records."""

    def encode(self, data: bytes) -> bytes:
        """Return the bytes for JSON.  Raises SchemaError."""


class Decoder:
    """Decodes with the schemas that records name.  Schemas and failures to get one are kept."""

    def __init__(self, client: RegistryClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._codecs: dict[int, Codec | SchemaError] = {}
        self._unreachable: RegistryUnreachable | None = None
        self._retry_at_s = 0.0

    def decode(self, data: bytes) -> Decoded:
        """Decode the values; raise SchemaError and RegistryUnreachable."""
        schema_id, payload = split_header(data)
        codec = self._codecs.get(schema_id) or self._new(schema_id)
        if isinstance(codec, SchemaError):
            raise codec
        try:
            return Decoded(codec.decode(payload), schema_id)
        except SchemaError as error:
            raise SchemaError(f"schema {schema_id}: {error}") from None

    def _new(self, schema_id: int) -> Codec | SchemaError:
        if self._unreachable is not None and self._clock() < self._retry_at_s:
            raise self._unreachable
        found: Codec | SchemaError
        try:
            found = codec_of(self._client.by_id(schema_id))
        except SchemaError as error:
            found = error
        except RegistryUnreachable as error:
            self._unreachable = error
            self._retry_at_s = self._clock() + RETRY_AFTER_S
            raise
        if len(self._codecs) >= _CODECS_MAX:
            del self._codecs[next(iter(self._codecs))]
        self._codecs[schema_id] = found
        return found


class Encoder:
    """Encodes JSON texts with one schema."""

    def __init__(self, schema: Schema, type_name: str | None = None) -> None:
        """Compile the schema, or raise SchemaError."""
        self._header = header_of(schema.id)
        self._codec = codec_of(schema, type_name)

    def encode(self, data: bytes) -> bytes:
        """Return a record in the wire format from JSON.  Raises SchemaError."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise SchemaError("it is not JSON in UTF-8") from None
        return self._header + self._codec.encode(text)


def codec_of(schema: Schema, type_name: str | None = None) -> Codec:
    """Return the codec of a schema; `type_name` selects a message type of Protobuf.

    Raises SchemaError and UsageError.
    """
    if type_name is not None and schema.type != "PROTOBUF":
        raise SchemaError(f"schema {schema.id} is {schema.type}; only Protobuf has message types")
    codec: Codec
    match schema.type:
        case "AVRO":
            codec = codec_module("avro").AvroCodec(schema)
        case "PROTOBUF":
            codec = codec_module("protobuf").ProtobufCodec(schema, type_name)
        case "JSON":
            codec = codec_module("json_schema").JsonCodec(schema)
        case _:
            raise SchemaError(
                f"schema {schema.id} has the type {schema.type[:40]}; supported are AVRO, PROTOBUF and JSON"
            )
    return codec


def codec_module(name: str) -> Any:
    """Return the module of a codec, imported when a schema of its type occurs."""
    try:
        return importlib.import_module(f"kctl.client.registry.{name}")
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is missing: pip install 'kctl-kafka[registry]'") from None
