"""Serializers for producers: values in Confluent's wire format, with schemas of a registry."""

from __future__ import annotations

import base64
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from kctl.client.registry.client import keep
from kctl.client.registry.codecs import codec_of
from kctl.client.registry.registry import SchemaRegistry, checked_schema
from kctl.client.registry.schema import NO_ID, Reference, Schema, SchemaError, header_of
from kctl.errors import UsageError

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor
    from google.protobuf.message import Message

T = TypeVar("T")
M = TypeVar("M", bound="Message")

SubjectName = Callable[[str, str | None, bool], str]
"""The subject of (topic, name of the record type or None, whether it is the key)."""


def topic_name(topic: str, record_name: str | None, is_key: bool) -> str:
    """`TOPIC-key` or `TOPIC-value`: one type for each topic.  TopicNameStrategy, the default of all clients."""
    del record_name
    return f"{topic}-{'key' if is_key else 'value'}"


def record_name(topic: str, record_name: str | None, is_key: bool) -> str:
    """Return the full name of the type: several types in a topic, and one in several topics.  RecordNameStrategy."""
    del topic, is_key
    return _required(record_name)


def topic_record_name(topic: str, record_name: str | None, is_key: bool) -> str:
    """`TOPIC-NAME` with the full name of the type: several types in a topic.  TopicRecordNameStrategy."""
    del is_key
    return f"{topic}-{_required(record_name)}"


def _required(name: str | None) -> str:
    if name is None:
        raise UsageError(
            "subject_name needs the name of the type, and the schema has none: an Avro record or the title of a JSON"
            " Schema; with use_latest_version give the schema too, or use topic_name"
        )
    return name


class _Target(NamedTuple):
    """What is needed to serialize for one topic."""

    header: bytes
    codec: Any
    subject: str
    end_s: float | None
    """When the latest version is looked up again."""


class RegistrySerializer(ABC, Generic[T]):
    """Serializes values of one type for `key_serializer` and `value_serializer` of ProducerConfig.

    The schema of a topic is registered or looked up when the first record is sent to it; a producer does that before
    it serializes (`prepare`), an asynchronous one in a thread.  None is the value of a tombstone, and has no schema.
    """

    kind = ""

    def __init__(
        self, registry: SchemaRegistry, subject_name: SubjectName, *, auto_register: bool, use_latest_version: bool
    ) -> None:
        if not isinstance(registry, SchemaRegistry):
            raise UsageError(f"registry must be a SchemaRegistry, not {type(registry).__name__}")
        if not callable(subject_name):
            raise UsageError("subject_name must be topic_name, record_name, topic_record_name or another function")
        self._registry = registry
        self._subject_name = subject_name
        self._auto_register = auto_register
        self._use_latest_version = use_latest_version
        self._targets: dict[tuple[str, bool], _Target] = {}
        self._one_writer = Lock()
        """Of `_targets`."""

    def __call__(self, value: T | None) -> bytes | None:
        """Refuse with UsageError: a serializer with a registry needs the topic."""
        raise UsageError("this serializer needs a topic: give it to ProducerConfig, or call serialize(topic, value)")

    def serialize(self, topic: str, value: T | None, *, is_key: bool = False) -> bytes | None:
        """Return the value in the wire format.  Raises SchemaError, RegistryUnreachable and UsageError."""
        if value is None:
            return None
        target = self._targets.get((topic, is_key))
        if target is None or (target.end_s is not None and time.monotonic() >= target.end_s):
            target = self._prepared(topic, is_key)
        try:
            return target.header + self._encode(target.codec, value)
        except SchemaError as error:
            raise SchemaError(f"subject {target.subject}: the {_part(is_key)} cannot be written: {error}") from None

    def is_prepared(self, topic: str, *, is_key: bool) -> bool:
        """Whether `serialize` sends no requests."""
        target = self._targets.get((topic, is_key))
        return target is not None and (target.end_s is None or time.monotonic() < target.end_s)

    def prepare(self, topic: str, *, is_key: bool) -> None:
        """Register or look up the schema for a topic.  Raises SchemaError, RegistryUnreachable and UsageError."""
        self._prepared(topic, is_key)

    def _prepared(self, topic: str, is_key: bool) -> _Target:
        subject = self._subject_name(topic, self._type_name(), is_key)
        if self._use_latest_version:
            schema = self._registry.latest(subject)
            if schema.type != self.kind:
                raise SchemaError(f"subject {subject} has schemas of type {schema.type}, not {self.kind}")
            target = _Target(
                header_of(schema.id),
                self._codec_of(schema),
                subject,
                time.monotonic() + self._registry.latest_max_age_s,
            )
        else:
            target = _Target(header_of(self._schema_id(subject)), self._own_codec(), subject, None)
        with self._one_writer:
            keep(self._targets, (topic, is_key), target)
        return target

    def _schema_id(self, subject: str) -> int:
        schema = self._own_schema()
        try:
            return self._registry.registered(subject, schema, registers=self._auto_register).id
        except SchemaError as error:
            if self._auto_register:
                raise SchemaError(f"subject {subject}: the schema cannot be registered: {error}") from None
            raise SchemaError(
                f"subject {subject}: {error}; register it, or use auto_register=True or use_latest_version=True"
            ) from None

    @abstractmethod
    def _type_name(self) -> str | None:
        """Return the full name of the type of the values."""

    @abstractmethod
    def _own_schema(self) -> Schema:
        """Return the schema to register or look up, with the references that it has in the registry."""

    @abstractmethod
    def _own_codec(self) -> Any:
        """Return the codec of this schema."""

    @abstractmethod
    def _encode(self, codec: Any, value: T) -> bytes:
        """Return the payload.  Raises SchemaError."""

    def _codec_of(self, schema: Schema) -> Any:
        """Return the codec of a schema of the registry."""
        return codec_of(schema)


class _TextSerializer(RegistrySerializer[T]):
    """A serializer whose schema the program gives as text."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | None,
        references: Sequence[Reference],
        to_value: Callable[[T], Any] | None,
        subject_name: SubjectName,
        *,
        auto_register: bool,
        use_latest_version: bool,
    ) -> None:
        super().__init__(registry, subject_name, auto_register=auto_register, use_latest_version=use_latest_version)
        if schema is None and not use_latest_version:
            raise UsageError("schema is missing: give its text, or use_latest_version=True")
        self._schema = None if schema is None else checked_schema(schema, self.kind, references)
        self._to_value = to_value
        self._codec: Any = None
        if self._schema is not None and not references:
            self._codec = codec_of(self._schema)

    def _type_name(self) -> str | None:
        name: str | None = None if self._schema is None else self._own_codec().record_name
        return name

    def _own_schema(self) -> Schema:
        assert self._schema is not None
        return self._schema

    def _own_codec(self) -> Any:
        if self._codec is None:
            self._codec = codec_of(self._registry.with_references(self._own_schema()))
        return self._codec

    def _value_of(self, value: T) -> Any:
        return value if self._to_value is None else self._to_value(value)


class AvroSerializer(_TextSerializer[T]):
    """Values as fastavro takes them, dictionaries for records; `to_value` makes them of other objects."""

    kind = "AVRO"

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | None = None,
        *,
        to_value: Callable[[T], Any] | None = None,
        references: Sequence[Reference] = (),
        subject_name: SubjectName = topic_name,
        auto_register: bool = True,
        use_latest_version: bool = False,
    ) -> None:
        """Prepare the serializer; `schema` is JSON; None with `use_latest_version`, which writes with the latest
        version of the subject.

        Without `auto_register` the schema must be a version of the subject already.  `references` are those of the
        schema in the registry.  Raises SchemaError, and UsageError, also without the extra `registry`.
        """
        super().__init__(
            registry,
            schema,
            references,
            to_value,
            subject_name,
            auto_register=auto_register,
            use_latest_version=use_latest_version,
        )

    def _encode(self, codec: Any, value: T) -> bytes:
        payload: bytes = codec.encode_datum(self._value_of(value))
        return payload


class JsonSerializer(_TextSerializer[T]):
    """Values as `json` takes them; `to_value` makes them of other objects."""

    kind = "JSON"

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | None = None,
        *,
        to_value: Callable[[T], Any] | None = None,
        references: Sequence[Reference] = (),
        subject_name: SubjectName = topic_name,
        auto_register: bool = True,
        use_latest_version: bool = False,
        validates: bool = True,
    ) -> None:
        """As AvroSerializer; a value is checked against the schema if `validates`."""
        super().__init__(
            registry,
            schema,
            references,
            to_value,
            subject_name,
            auto_register=auto_register,
            use_latest_version=use_latest_version,
        )
        self._validates = validates

    def _encode(self, codec: Any, value: T) -> bytes:
        payload: bytes = codec.encode_value(self._value_of(value), validates=self._validates)
        return payload


class ProtobufSerializer(RegistrySerializer[M]):
    """Messages of one generated class.

    The file of the message is registered as its descriptor, after those that it imports, each of which is a subject
    with the name of the file; files of google.protobuf are known to all readers and not registered.
    """

    kind = "PROTOBUF"

    def __init__(
        self,
        registry: SchemaRegistry,
        message_type: type[M],
        *,
        subject_name: SubjectName = topic_name,
        auto_register: bool = True,
        use_latest_version: bool = False,
    ) -> None:
        """With `use_latest_version` the id is that of the latest version, which must have the message type.

        Raises UsageError, also without the extra `registry`.
        """
        super().__init__(registry, subject_name, auto_register=auto_register, use_latest_version=use_latest_version)
        if not isinstance(message_type, type) or not hasattr(message_type, "DESCRIPTOR"):
            raise UsageError("message_type must be a class that protoc has generated")
        self._message_type = message_type
        self._codec: Any = None
        files = _imports_of(message_type.DESCRIPTOR.file)
        by_reference = {file.name: Schema(NO_ID, self.kind, _text_of(file)) for file in files}
        schema = Schema(NO_ID, self.kind, _text_of(message_type.DESCRIPTOR.file), (), by_reference)
        self._codec = codec_of(schema, message_type.DESCRIPTOR.full_name)

    def _type_name(self) -> str | None:
        return str(self._message_type.DESCRIPTOR.full_name)

    def _own_schema(self) -> Schema:
        known: dict[str, Reference] = {}
        file = self._message_type.DESCRIPTOR.file
        return Schema(NO_ID, self.kind, _text_of(file), self._references(file, known))

    def _references(self, file: FileDescriptor, known: dict[str, Reference]) -> tuple[Reference, ...]:
        """Return the files that it imports as they are in the registry."""
        references = []
        for imported in file.dependencies:
            if imported.name.startswith(_KNOWN_TO_ALL):
                continue
            if imported.name not in known:
                schema = Schema(NO_ID, self.kind, _text_of(imported), self._references(imported, known))
                if self._auto_register:
                    self._registry.registered(imported.name, schema, registers=True)
                version = self._registry.registered(imported.name, schema, registers=False).version
                if version is None:
                    raise SchemaError(f"the registry returned no version of the subject {imported.name}")
                known[imported.name] = Reference(imported.name, imported.name, version)
            references.append(known[imported.name])
        return tuple(references)

    def _own_codec(self) -> Any:
        return self._codec

    def _codec_of(self, schema: Schema) -> Any:
        codec: Any = codec_of(schema, self._type_name())
        codec.check_type()
        return codec

    def _encode(self, codec: Any, value: M) -> bytes:
        if not isinstance(value, self._message_type):
            raise SchemaError(f"it is a {type(value).__name__}, not a {self._type_name()}")
        payload: bytes = codec.encode_message(value)
        return payload


_KNOWN_TO_ALL = "google/protobuf/"


def _imports_of(file: FileDescriptor) -> Mapping[FileDescriptor, None]:
    """All files that a file imports, also indirectly, without those of google.protobuf."""
    found: dict[FileDescriptor, None] = {}
    left = list(file.dependencies)
    while left:
        imported = left.pop()
        if imported not in found and not imported.name.startswith(_KNOWN_TO_ALL):
            found[imported] = None
            left.extend(imported.dependencies)
    return found


def _text_of(file: FileDescriptor) -> str:
    """Return the descriptor as registries take it."""
    return base64.b64encode(file.serialized_pb).decode()


def _part(is_key: bool) -> str:
    return "key" if is_key else "value"
