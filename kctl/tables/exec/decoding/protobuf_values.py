"""Protobuf messages as columns: the type of a message type, and its values.

int32, int64, float, double, bool, string and bytes are the columns of these kinds, uint32 is int64, uint64
decimal(20,0), an enum the name of its value, a message a struct, a repeated field a list, a map a map with keys as
strings.  Timestamp is a timestamp in microseconds, and the nanoseconds beyond are in a field beside it, `at__nanos`
for `at`; in lists and maps it is a text of RFC 3339 with all digits.  Duration is a struct with seconds and nanos, a
wrapper such as Int32Value the value in it, and Struct, Value, ListValue and Any are strings with their JSON.  A field
with presence that is not set is null; others have their default.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from kctl.client.registry.protobuf import ProtobufCodec
from kctl.client.registry.schema import Schema, SchemaError
from kctl.errors import UsageError
from kctl.tables.exec.decoding.registry_values import RegistryDecoder
from kctl.tables.exec.schema.column_types import ListOf, MapOf, Struct, Type, TypeCount
from kctl.tables.exec.selection.columns import CALENDAR_US

_TYPES: dict[int, Type] = {
    FieldDescriptor.CPPTYPE_INT32: "int32",
    FieldDescriptor.CPPTYPE_INT64: "int64",
    FieldDescriptor.CPPTYPE_UINT32: "int64",
    FieldDescriptor.CPPTYPE_UINT64: "decimal(20,0)",
    FieldDescriptor.CPPTYPE_DOUBLE: "double",
    FieldDescriptor.CPPTYPE_FLOAT: "float",
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_ENUM: "string",
}
_EMPTY = {Struct(), ListOf(Struct()), MapOf(Struct())}
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = {
    f"google.protobuf.{kind}Value"
    for kind in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
}
_AS_JSON = {f"google.protobuf.{kind}" for kind in ("Struct", "Value", "ListValue", "Any")}
_Value = Callable[[Any], Any]


def column_of(codec: ProtobufCodec, name: str) -> Struct:
    """Return the columns of the first message type of a schema.  Raises UsageError."""
    found = _message_type(codec.first_type, name, frozenset(), TypeCount(name))
    if not isinstance(found, Struct) or not found.fields:
        raise UsageError(f"the first message type of the Protobuf schema of {name} has no fields")
    return found


class ProtobufDecoder(RegistryDecoder):
    """Messages of the first message types of the schemas whose ids are in their headers."""

    def reader_of(self, schema: Schema) -> Callable[[bytes], Any]:
        """See RegistryDecoder."""
        codec = ProtobufCodec(schema)
        value_of = _message_value(codec.first_type, codec, frozenset())

        def read(payload: bytes) -> Any:
            message = codec.message(payload)
            if codec.first_type != message.DESCRIPTOR:
                raise SchemaError(f"it is a {message.DESCRIPTOR.full_name}, not a {codec.first_type.full_name}")
            try:
                return value_of(message)
            except (ValueError, TypeError, RecursionError, json_format.Error) as error:
                raise SchemaError(f"it is not a message of its schema: {type(error).__name__}") from None

        return read


def _message_type(descriptor: Descriptor, path: str, within: frozenset[str], count: TypeCount) -> Type:
    count.add()
    if descriptor.full_name == _TIMESTAMP:
        return "timestamp"
    if descriptor.full_name in _AS_JSON:
        return "string"
    if descriptor.full_name in _WRAPPERS:
        return _single_type(descriptor.fields_by_name["value"], path, within, count)
    if descriptor.full_name in within:
        return "string"
    inner = within | {descriptor.full_name}
    found = [(field.name, _field_type(field, f"{path}.{field.name}", inner, count)) for field in descriptor.fields]
    found += [(name, "int32") for name in _nanos_names(descriptor).values()]
    # A message without fields has no column.
    return Struct(tuple((name, type_) for name, type_ in found if type_ not in _EMPTY))


def _nanos_names(descriptor: Descriptor) -> dict[str, str]:
    """Return the names of the columns for the nanoseconds of fields that are timestamps."""
    taken = {field.name.lower() for field in descriptor.fields}
    names = {field.name: f"{field.name}__nanos" for field in descriptor.fields if _is_timestamp(field)}
    return {name: column for name, column in names.items() if column.lower() not in taken}


def _is_timestamp(field: FieldDescriptor) -> bool:
    message_type = field.message_type
    return message_type is not None and message_type.full_name == _TIMESTAMP and not field.is_repeated


def _field_type(field: FieldDescriptor, path: str, within: frozenset[str], count: TypeCount) -> Type:
    if _is_map(field):
        return MapOf(_item_type(field.message_type.fields_by_name["value"], f"{path}[]", within, count))
    if field.is_repeated:
        return ListOf(_item_type(field, path, within, count))
    return _single_type(field, path, within, count)


def _item_type(field: FieldDescriptor, path: str, within: frozenset[str], count: TypeCount) -> Type:
    """Return the type of an item of a list or map, where no column beside it can have nanoseconds."""
    type_ = _single_type(field, path, within, count)
    return "string" if type_ == "timestamp" else type_


def _single_type(field: FieldDescriptor, path: str, within: frozenset[str], count: TypeCount) -> Type:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return _message_type(field.message_type, path, within, count)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return "binary" if field.type == FieldDescriptor.TYPE_BYTES else "string"
    return _TYPES[field.cpp_type]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _message_value(descriptor: Descriptor, codec: ProtobufCodec, within: frozenset[str]) -> _Value:
    """Return a function from a message to what Arrow takes; a message within one of its type is JSON."""
    name = descriptor.full_name
    if name == _TIMESTAMP:
        return _microseconds
    if name in _AS_JSON or name in within:
        return lambda message: json_format.MessageToJson(message, indent=None, descriptor_pool=codec.pool)
    if name in _WRAPPERS:
        inner = _single_value(descriptor.fields_by_name["value"], codec, within)
        return lambda message: inner(message.value)
    fields = [
        (field.name, field.has_presence, _field_value(field, codec, within | {name})) for field in descriptor.fields
    ]
    nanos = _nanos_names(descriptor)
    whole = [field.name for field in descriptor.fields if _is_timestamp(field) and field.name not in nanos]

    def read(message: Any) -> dict[str, Any]:
        row = {
            name: value_of(getattr(message, name)) if not has_presence or message.HasField(name) else None
            for name, has_presence, value_of in fields
        }
        for name, column in nanos.items():
            row[column] = getattr(message, name).nanos % 1000 or None
        if any(getattr(message, name).nanos % 1000 for name in whole):
            raise SchemaError("a timestamp has nanoseconds, for which the message leaves no name of a column")
        return row

    return read


def _field_value(field: FieldDescriptor, codec: ProtobufCodec, within: frozenset[str]) -> _Value:
    if _is_map(field):
        value_of = _item_value(field.message_type.fields_by_name["value"], codec, within)
        return lambda entries: {_key(key): value_of(entries[key]) for key in entries}
    if field.is_repeated:
        item = _item_value(field, codec, within)
        return lambda items: [item(element) for element in items]
    return _single_value(field, codec, within)


def _item_value(field: FieldDescriptor, codec: ProtobufCodec, within: frozenset[str]) -> _Value:
    message_type = field.message_type
    if message_type is not None and message_type.full_name == _TIMESTAMP:
        return lambda timestamp: timestamp.ToJsonString()
    return _single_value(field, codec, within)


def _single_value(field: FieldDescriptor, codec: ProtobufCodec, within: frozenset[str]) -> _Value:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return _message_value(field.message_type, codec, within)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    return Decimal if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64 else _same


def _microseconds(timestamp: Any) -> int:
    found: int = timestamp.seconds * 1_000_000 + timestamp.nanos // 1000
    if found not in CALENDAR_US:
        raise SchemaError("a timestamp is not in the years 1 to 9999")
    return found


def _key(key: object) -> str:
    """As in the JSON of Protobuf."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _same(value: Any) -> Any:
    return value
