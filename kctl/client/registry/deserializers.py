"""Deserializers for consumers: values in Confluent's wire format, with the schemas that the records name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from kctl.client.application.consumer_records import Unprepared
from kctl.client.registry.codecs import codec_of
from kctl.client.registry.registry import SchemaRegistry, checked_schema
from kctl.client.registry.schema import RegistryUnreachable, SchemaError, split_header
from kctl.errors import UsageError

if TYPE_CHECKING:
    from google.protobuf.message import Message

T = TypeVar("T")


class RegistryDeserializer(ABC, Generic[T]):
    """Deserializes keys or values: a `key_deserializer` or `value_deserializer` of a consumer.

    A schema is fetched once, when the first record names it.  A consumer does that in a thread, so that heartbeats go
    on.  The value of a tombstone is None.
    """

    kind = ""

    def __init__(self, registry: SchemaRegistry) -> None:
        if not isinstance(registry, SchemaRegistry):
            raise UsageError(f"registry must be a SchemaRegistry, not {type(registry).__name__}")
        self._registry = registry

    def __call__(self, data: bytes | None) -> T | None:
        """Return the value.

        Raises SchemaError, which names the id of the schema, RegistryUnreachable and UsageError.
        """
        if data is None:
            return None
        schema_id, payload = split_header(data)
        codec = self._registry.known_codec(schema_id) or self._registry.codec(schema_id)
        return self._checked_value(schema_id, codec, payload)

    def without_waiting(self, data: bytes | None) -> T | None:
        """As a call, for an event loop: raises Unprepared instead of a request to the registry."""
        if data is None:
            return None
        schema_id, payload = split_header(data)
        codec = self._registry.known_codec(schema_id)
        if codec is None:
            raise Unprepared(lambda: self._prepare(schema_id))
        return self._checked_value(schema_id, codec, payload)

    def _prepare(self, schema_id: int) -> None:
        """Fetch a schema; the registry keeps the failure, which the next call raises."""
        try:
            self._registry.codec(schema_id)
        except (SchemaError, RegistryUnreachable):
            return

    def _checked_value(self, schema_id: int, codec: Any, payload: bytes) -> T:
        if codec.kind != self.kind:
            raise SchemaError(f"schema {schema_id} is of type {codec.kind}, not {self.kind}: use {_NAMES[codec.kind]}")
        try:
            return self._value(codec, payload)
        except SchemaError as error:
            raise SchemaError(f"schema {schema_id}: {error}") from None

    @abstractmethod
    def _value(self, codec: Any, payload: bytes) -> T:
        """Return the value of a payload.  Raises SchemaError."""


_NAMES = {"AVRO": "AvroDeserializer", "JSON": "JsonDeserializer", "PROTOBUF": "ProtobufDeserializer"}


class AvroDeserializer(RegistryDeserializer[T]):
    """Values as fastavro reads them: dictionaries for records, and the types of Python for logical types."""

    kind = "AVRO"

    @overload
    def __init__(self: AvroDeserializer[Any], registry: SchemaRegistry, schema: str | None = None) -> None: ...

    @overload
    def __init__(
        self, registry: SchemaRegistry, schema: str | None = None, *, from_value: Callable[[Any], T]
    ) -> None: ...

    def __init__(
        self, registry: SchemaRegistry, schema: str | None = None, *, from_value: Callable[[Any], T] | None = None
    ) -> None:
        """Prepare the deserializer; `schema` is that of the reader, to which values are resolved: without fields that
        it lacks, and with its defaults; None reads values as they were written.  `from_value` makes objects of them.

        Raises SchemaError, and UsageError, also without the extra `registry`.
        """
        super().__init__(registry)
        self._reader = None if schema is None else codec_of(checked_schema(schema, self.kind, ()))
        self._from_value = from_value

    def _value(self, codec: Any, payload: bytes) -> T:
        value: Any = codec.datum(payload, self._reader)
        return value if self._from_value is None else self._from_value(value)


class JsonDeserializer(RegistryDeserializer[T]):
    """Values as `json` reads them."""

    kind = "JSON"

    @overload
    def __init__(self: JsonDeserializer[Any], registry: SchemaRegistry, *, validates: bool = True) -> None: ...

    @overload
    def __init__(self, registry: SchemaRegistry, *, from_value: Callable[[Any], T], validates: bool = True) -> None: ...

    def __init__(
        self,
        registry: SchemaRegistry,
        *,
        from_value: Callable[[Any], T] | None = None,
        validates: bool = True,
    ) -> None:
        """`from_value` makes objects of the values, which are checked against their schema if `validates`."""
        super().__init__(registry)
        self._from_value = from_value
        self._validates = validates

    def _value(self, codec: Any, payload: bytes) -> T:
        value: Any = codec.value(payload, validates=self._validates)
        return value if self._from_value is None else self._from_value(value)


class ProtobufDeserializer(RegistryDeserializer[T]):
    """Messages of a generated class, or of classes that are made of the schemas."""

    kind = "PROTOBUF"

    @overload
    def __init__(self: ProtobufDeserializer[Message], registry: SchemaRegistry) -> None: ...

    @overload
    def __init__(self, registry: SchemaRegistry, message_type: type[T]) -> None: ...

    def __init__(self, registry: SchemaRegistry, message_type: type[T] | None = None) -> None:
        """Prepare the deserializer; records whose message has another full name than `message_type` are refused.

        Raises UsageError, also without the extra `registry`.
        """
        super().__init__(registry)
        if message_type is not None and not hasattr(message_type, "DESCRIPTOR"):
            raise UsageError("message_type must be a class that protoc has generated")
        self._message_type = message_type

    def _value(self, codec: Any, payload: bytes) -> T:
        message: T = codec.message(payload, self._message_type)
        return message
