"""Schemas as a registry returns them, and the header of records in Confluent's wire format.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kctl.errors import KctlError
from kctl.integers import INT32_MAX, is_integer

HEADER_BYTES = 5
_INDEXES_MAX = 64
"""Levels of nested messages; protoc accepts 32."""


class SchemaError(KctlError):
    """A schema or data that cannot be used; the text is the same for all records with this cause."""


class RegistryUnreachable(KctlError):
    """No registry responded in time and with JSON, or all of them refused the client."""


class Reference(NamedTuple):
    """A schema that another one uses under a name."""

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    """A schema; its text is base64 of a FileDescriptorProto if its type is PROTOBUF."""

    id: int
    type: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[Reference, ...] = ()
    by_reference: Mapping[str, Any] = MappingProxyType({})
    """All schemas that it uses, also indirectly, by name: each is a Schema."""


def schema_of(document: Any, schema_id: int | None) -> Schema:
    """The schema in a response; `schema_id` is None if the response contains it.  Raises SchemaError."""
    if not isinstance(document, dict):
        raise SchemaError("the registry returned no schema")
    number = document.get("id") if schema_id is None else schema_id
    text, kind = document.get("schema"), document.get("schemaType", "AVRO")
    if not is_integer(number, high=INT32_MAX) or not isinstance(text, str) or not isinstance(kind, str):
        raise SchemaError("the registry returned no schema")
    references = document.get("references") or []
    if not isinstance(references, list):
        raise SchemaError("the registry returned references that are not a list")
    return Schema(int(number or 0), kind, text, tuple(_reference(one) for one in references))


def _reference(document: Any) -> Reference:
    match document:
        case {"name": str(name), "subject": str(subject), "version": int(version)} if is_integer(version):
            return Reference(name, subject, version)
    raise SchemaError("the registry returned a reference without name, subject and version")


def split_header(data: bytes) -> tuple[int, bytes]:
    """(schema id, payload) of a record: a zero byte, the id in 4 bytes, the payload.  Raises SchemaError."""
    if len(data) < HEADER_BYTES or data[0] != 0:
        raise SchemaError("it is not in the wire format of schema registries: a zero byte and a schema id")
    return int.from_bytes(data[1:HEADER_BYTES], "big"), data[HEADER_BYTES:]


def header_of(schema_id: int) -> bytes:
    """The header of a record with this schema."""
    return b"\0" + schema_id.to_bytes(4, "big")


def split_indexes(payload: bytes) -> tuple[list[int], bytes]:
    """(path, message) of a Protobuf payload: the indexes of nested message types that lead to that of the message.

    A single zero byte is [0], the first type of the file.  Raises SchemaError.
    """
    count, position = _varint(payload, 0)
    if count == 0:
        return [0], payload[position:]
    if not 0 < count <= _INDEXES_MAX:
        raise SchemaError("its message indexes are invalid")
    indexes = []
    for _ in range(count):
        index, position = _varint(payload, position)
        indexes.append(index)
    return indexes, payload[position:]


def indexes_of(path: list[int]) -> bytes:
    """The inverse of `split_indexes`."""
    return b"\0" if path == [0] else b"".join(_zigzag(number) for number in [len(path), *path])


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise SchemaError("its message indexes are invalid")


def _zigzag(number: int) -> bytes:
    value, written = number << 1, bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])
