"""Schemas that Kafka Connect writes into JSON, as types of columns, and its values as those of the columns.  Pure.

JSON has decimals and bytes in base64, and times as numbers; only the schema says so.  Types of a name of Debezium's or
Connect's:

    decimal                                    org.apache.kafka.connect.data.Decimal
    date                                       ...connect.data.Date, io.debezium.time.Date: days
    timestamp                                  ...connect.data.Timestamp, io.debezium.time.Timestamp: milliseconds,
                                               MicroTimestamp: microseconds, ZonedTimestamp: text of ISO 8601
    string                                     io.debezium.data.VariableScaleDecimal: all digits

Nanoseconds, and times of day stay numbers.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from kctl.limits import EXPORT_COLUMN_DEPTH_MAX
from kctl.tables.exec.schema.column_types import ListOf, Struct, Type, is_column_name
from kctl.tables.exec.schema.json_text import Number

PRECISION_MAX = 38
DECIMAL_BYTES_MAX = 1_000
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATES = {"org.apache.kafka.connect.data.Date", "io.debezium.time.Date"}
_UNITS_US = {
    "org.apache.kafka.connect.data.Timestamp": 1000,
    "io.debezium.time.Timestamp": 1000,
    "io.debezium.time.MicroTimestamp": 1,
}
_ZONED = "io.debezium.time.ZonedTimestamp"
_TYPES = {
    "boolean": "boolean",
    "int8": "int32",
    "int16": "int32",
    "int32": "int32",
    "int64": "int64",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "string": "string",
    "bytes": "binary",
}


def logical_type(name: Any) -> str | None:
    """Return the type of a named type of Connect that is a date or time; None for others."""
    if name in _DATES:
        return "date"
    return "timestamp" if name in _UNITS_US or name == _ZONED else None


def column_of(schema: Any, depth: int = 0) -> Type | None:
    """Return the type of a schema's column; None if it has none."""
    if not isinstance(schema, dict) or depth > EXPORT_COLUMN_DEPTH_MAX:
        return None
    name = schema.get("name")
    if logical := logical_type(name):
        return logical
    if name == _DECIMAL:
        scale = scale_of(schema)
        return None if scale is None else f"decimal({max(_precision(schema), scale)},{scale})"
    if name == _VARIABLE:
        return "string"
    match schema.get("type"):
        case "struct":
            return _struct(schema.get("fields"), depth)
        case "array":
            item = column_of(schema.get("items"), depth + 1)
            return None if item is None else ListOf(item)
        case str() as kind:
            return _TYPES.get(kind)
    return None


def _struct(fields: Any, depth: int) -> Type | None:
    kept: dict[str, tuple[str, Type]] = {}
    for field in fields if isinstance(fields, list) else ():
        name = field.get("field") if isinstance(field, dict) else None
        if isinstance(name, str) and is_column_name(name) and (type_ := column_of(field, depth + 1)) is not None:
            kept.setdefault(name.lower(), (name, type_))
    return Struct(tuple(kept.values())) if kept else None


def field_schema(schema: Any, name: str) -> Any:
    """Return the schema of a field of a struct; None if it has no such field."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    found = fields if isinstance(fields, list) else []
    return next((field for field in found if isinstance(field, dict) and field.get("field") == name), None)


def scale_of(schema: Mapping[str, Any]) -> int | None:
    """Return the scale of a Decimal; None if a column cannot have it."""
    parameters = schema.get("parameters")
    text = parameters.get("scale") if isinstance(parameters, dict) else None
    try:
        scale = int(text) if isinstance(text, str | int) else -1
    except ValueError:
        return None
    return scale if 0 <= scale <= PRECISION_MAX else None


def _precision(schema: Mapping[str, Any]) -> int:
    text = schema.get("parameters", {}).get("connect.decimal.precision")
    precision = int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 4 else text
    return precision if isinstance(precision, int) and 1 <= precision <= PRECISION_MAX else PRECISION_MAX


def converted(value: Any, schema: Any, depth: int = 0) -> Any:
    """Return a value of JSON as its column has it; what does not fit the schema stays as it is."""
    if value is None or not isinstance(schema, dict) or depth > EXPORT_COLUMN_DEPTH_MAX:
        return value
    name = schema.get("name")
    match value:
        case dict() if name == _VARIABLE:
            return _variable_decimal(value)
        case dict():
            return {key: converted(member, field_schema(schema, key), depth + 1) for key, member in value.items()}
        case list():
            return [converted(item, schema.get("items"), depth + 1) for item in value]
    try:
        return _scalar(value, schema, name)
    except (ValueError, OverflowError):
        return value


def _scalar(value: Any, schema: Mapping[str, Any], name: Any) -> Any:
    match value:
        case bool():
            return value
        case int() if name in _DATES:
            return date(1970, 1, 1) + timedelta(days=value)
        case int() if name in _UNITS_US:
            return _EPOCH + timedelta(microseconds=value * _UNITS_US[name])
        case str() if name == _ZONED:
            return zoned(value)
        case str() if name == _DECIMAL and (scale := scale_of(schema)) is not None:
            return decimal_of_bytes(base64.b64decode(value, validate=True), scale)
        case str() if schema.get("type") == "bytes" and name != _DECIMAL:
            return base64.b64decode(value, validate=True)
    return value


def zoned(text: str) -> datetime:
    """Return a time of ISO 8601 with its offset.  Raises ValueError, also without an offset."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(text)
    return time.astimezone(UTC)


def decimal_of_bytes(data: bytes, scale: int) -> Decimal:
    """Return the decimal of an unscaled number in two's complement.  Raises ValueError for a very large one."""
    if len(data) > DECIMAL_BYTES_MAX:
        raise ValueError(scale)
    unscaled = int.from_bytes(data, signed=True)
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def _variable_decimal(value: Mapping[str, Any]) -> Any:
    scale, text = value.get("scale"), value.get("value")
    if not isinstance(scale, int) or abs(scale) > DECIMAL_BYTES_MAX or not isinstance(text, str):
        return value
    try:
        return format(decimal_of_bytes(base64.b64decode(text, validate=True), scale), "f")
    except ValueError:
        return value


_TEXTS: Mapping[type, Callable[[Any], Any]] = {
    Decimal: lambda value: Number(format(value, "f")),
    bytes: lambda value: base64.b64encode(value).decode(),
    datetime: lambda value: value.isoformat(),
    date: lambda value: value.isoformat(),
}


def as_json(value: Any) -> Any:
    """Return a converted value as one that JSON has."""
    match value:
        case dict():
            return {name: as_json(member) for name, member in value.items()}
        case list():
            return [as_json(item) for item in value]
    return _TEXTS.get(type(value), lambda value: value)(value)
