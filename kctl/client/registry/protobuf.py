"""Protobuf messages as the JSON of Protobuf, with the field names of the schema."""

from __future__ import annotations

import base64
import importlib
import json
from functools import cached_property
from typing import Any

from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from kctl.client.registry.schema import Schema, SchemaError, indexes_of, split_indexes

WELL_KNOWN = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in (
        *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp"),
        *("type", "wrappers"),
    )
}


class ProtobufCodec:
    """Messages of one file; `type_name` is the message type that `encode` uses, by default the first of the file."""

    kind = "PROTOBUF"

    def __init__(self, schema: Schema, type_name: str | None = None) -> None:
        """Compile the schema, or raise SchemaError."""
        self._pool = DescriptorPool()
        self._schema = schema
        self._added: set[str] = set()
        try:
            self._file = self._add(f"schema-{schema.id}.proto", schema, 0)
        except (TypeError, DecodeError, ValueError, KeyError, ImportError) as error:
            raise SchemaError(f"{schema.label} is not a valid Protobuf schema: {str(error)[:200]}") from None
        self._type_name = type_name

    @property
    def pool(self) -> DescriptorPool:
        """The descriptors of the schema and those that it uses."""
        return self._pool

    @property
    def first_type(self) -> Descriptor:
        """The first message type.  Raises SchemaError if there is none."""
        return self._type_at([0])

    def message(self, payload: bytes, message_class: type[Message] | None = None) -> Message:
        """Return the message of a payload, of a generated class or of one that is made of the schema.

        Raises SchemaError.
        """
        message_type, data = self._type_of(payload)
        if message_class is not None and message_class.DESCRIPTOR.full_name != message_type.full_name:
            raise SchemaError(f"it is a {message_type.full_name}, not a {message_class.DESCRIPTOR.full_name}")
        message: Message = (message_class or GetMessageClass(message_type))()
        try:
            message.ParseFromString(data)
        except (DecodeError, ValueError, TypeError, RecursionError) as error:
            raise SchemaError(f"it is not a message of its schema: {type(error).__name__}") from None
        return message

    def _type_of(self, payload: bytes) -> tuple[Descriptor, bytes]:
        path, data = split_indexes(payload)
        return self._type_at(path), data

    def check_type(self) -> None:
        """Raise SchemaError if the schema does not define the selected type."""
        self._path()

    def encode_message(self, message: Message) -> bytes:
        """Return the payload of a message of the selected type.  Raises SchemaError."""
        try:
            data = bytes(message.SerializeToString())
        except (EncodeError, ValueError) as error:
            raise SchemaError(f"it cannot be written: {str(error)[:200]}") from None
        return self._indexes + data

    @cached_property
    def _indexes(self) -> bytes:
        return indexes_of(self._path())

    def decode(self, payload: bytes) -> str:
        """JSON.  Raises SchemaError."""
        return json_of(self.message(payload), self._pool)

    def encode(self, text: str) -> bytes:
        """Return the inverse of `decode`.  Raises SchemaError."""
        path = self._path()
        return indexes_of(path) + message_of_json(text, GetMessageClass(self._type_at(path)), self._pool)

    def _add(self, name: str, schema: Schema, depth: int) -> FileDescriptor:
        """Add the file after those that it imports."""
        if depth > len(self._schema.by_reference):
            raise SchemaError(f"{self._schema.label} has circular references")
        file = descriptor_pb2.FileDescriptorProto()
        try:
            file.ParseFromString(base64.b64decode(schema.text, validate=True))
        except ValueError:
            raise SchemaError(
                f"{schema.label} was returned as text; kctl requires a registry that returns Protobuf schemas as"
                " descriptors (format=serialized)"
            ) from None
        file.name = name
        for imported in file.dependency:
            if imported not in self._added:
                self._added.add(imported)
                self._import(imported, depth)
        self._pool.Add(file)
        return self._pool.FindFileByName(name)

    def _import(self, name: str, depth: int) -> None:
        if name in self._schema.by_reference:
            self._add(name, self._schema.by_reference[name], depth + 1)
            return
        if name not in WELL_KNOWN:
            raise SchemaError(f"{self._schema.label} imports {name}, which is not among its references")
        known = well_known_file(name)
        for imported in known.dependency:
            if imported not in self._added:
                self._added.add(imported)
                self._import(imported, depth)
        self._pool.Add(known)

    def _type_at(self, path: list[int]) -> Descriptor:
        types: Any = list(self._file.message_types_by_name.values())
        try:
            found: Descriptor = types[_checked(path[0])]
            for index in path[1:]:
                found = found.nested_types[_checked(index)]
        except IndexError:
            raise SchemaError("its message indexes are not in its schema") from None
        return found

    def _path(self) -> list[int]:
        if self._type_name is None:
            return [0]
        try:
            descriptor = self._pool.FindMessageTypeByName(self._type_name)
        except KeyError:
            raise SchemaError(f"{self._schema.label} has no message type {self._type_name}") from None
        path: list[int] = []
        while descriptor.containing_type is not None:
            siblings = list(descriptor.containing_type.nested_types)
            path.insert(0, siblings.index(descriptor))
            descriptor = descriptor.containing_type
        names = list(self._file.message_types_by_name)
        if descriptor.name not in names or descriptor.file.name != self._file.name:
            raise SchemaError(f"{self._type_name} is not defined in {self._schema.label} itself")
        return [names.index(descriptor.name), *path]


def well_known_file(name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return one of the files of WELL_KNOWN, which belong to Protobuf."""
    file = descriptor_pb2.FileDescriptorProto()
    importlib.import_module(WELL_KNOWN[name]).DESCRIPTOR.CopyToProto(file)
    return file


def json_of(message: Message, pool: DescriptorPool) -> str:
    """Return the JSON of a message, with the field names of its schema.  Raises SchemaError."""
    try:
        document = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
    except (ValueError, TypeError, RecursionError, json_format.Error) as error:
        raise SchemaError(f"it is not a message of its schema: {type(error).__name__}") from None
    return json.dumps(document, ensure_ascii=False)


def message_of_json(text: str, message_class: type[Message], pool: DescriptorPool) -> bytes:
    """Return the bytes of a message, the inverse of `json_of`.  Raises SchemaError."""
    message = message_class()
    try:
        json_format.Parse(text, message, descriptor_pool=pool)
        return bytes(message.SerializeToString())
    except (EncodeError, ValueError, TypeError, RecursionError, json_format.Error) as error:
        raise SchemaError(f"it is not a message of the schema, in the JSON of Protobuf: {str(error)[:200]}") from None


def _checked(index: int) -> int:
    if index < 0:
        raise IndexError
    return index
