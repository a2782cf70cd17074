"""Texts for the logical types of Avro, in place of the numbers and bytes that the JSON encoding of Avro has.  Pure.

    decimal                          "12.34", with as many digits after the point as the scale
    date                             "2026-11-21"
    time-millis, -micros             "10:05:00.123", "10:05:00.123456"
    timestamp-millis, -micros, -nanos        "2026-11-21T10:05:00.123Z", with 3, 6 or 9 digits
    local-timestamp-millis, -micros, -nanos  the same without Z
    uuid                             "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
    duration                         "P1M2DT3.004S": months, days and seconds

Times outside of the years 1 to 9999 stay numbers, and numbers are read for all times.  A logical type that is not
known, or that the Avro specification does not allow for the type, has no effect.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from kctl.client.registry.schema import SchemaError
from kctl.output.quantities import counted

PRECISION_MAX = 1_000
"""Digits of a decimal; one with more is shown as bytes."""
_DECIMAL_BYTES_MAX = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = range((datetime(1, 1, 1, tzinfo=UTC) - _EPOCH).days, (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH).days + 1)
_DAY_S = 86_400
_DIGITS = {"millis": 3, "micros": 6, "nanos": 9}
_DECIMAL = re.compile(r"-?[0-9]{1,1000}(?:\.[0-9]{1,1000})?")
_DATE = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
_TIME = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
_DURATION = re.compile(r"P([0-9]{1,10})M([0-9]{1,10})DT([0-9]{1,7})(?:\.([0-9]{1,3}))?S")
_PARTS_MAX = 0xFFFF_FFFF

Node = Any
"""A part of a parsed schema: a name, a list of branches or an object."""
Convert = Callable[[Mapping[str, Any], Any], Any]
"""A value of a logical type in the other form.  Raises SchemaError."""


def has_logical_types(schema: Node) -> bool:
    """Return whether any part of a schema, as it was written, has the member."""
    if isinstance(schema, list):
        return any(map(has_logical_types, schema))
    if not isinstance(schema, dict):
        return False
    parts = [schema.get("type"), schema.get("items"), schema.get("values")]
    parts += [field.get("type") for field in schema.get("fields", ()) if isinstance(field, dict)]
    return "logicalType" in schema or any(map(has_logical_types, parts))


def without_logical_types(schema: Node) -> Node:
    """Return a schema, as it was written, whose values are read as their underlying types."""
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: member for name, member in schema.items() if name != "logicalType"}
    for name in ("type", "items", "values"):
        if name in plain:
            plain[name] = without_logical_types(plain[name])
    if "fields" in plain:
        plain["fields"] = [{**field, "type": without_logical_types(field["type"])} for field in plain["fields"]]
    return plain


def to_texts(schema: Node, named: Mapping[str, Node], value: Any) -> Any:
    """Return a value of the JSON encoding of Avro with texts.  Raises SchemaError."""
    return _walked(schema, named, value, _text_of)


def from_texts(schema: Node, named: Mapping[str, Node], value: Any) -> Any:
    """Return the inverse of `to_texts`; what does not match the schema stays as it is.  Raises SchemaError."""
    return _walked(schema, named, value, _value_of)


def _walked(schema: Node, named: Mapping[str, Node], value: Any, convert: Convert) -> Any:
    if isinstance(schema, str):
        definition = named.get(schema)
        return value if definition is None else _walked(definition, named, value, convert)
    if isinstance(schema, list):
        return _of_union(schema, named, value, convert)
    kind = schema.get("type")
    if isinstance(kind, dict | list):
        return _walked(kind, named, value, convert)
    if "logicalType" in schema:
        return convert(schema, value)
    if kind == "array" and isinstance(value, list):
        return [_walked(schema["items"], named, item, convert) for item in value]
    if kind == "map" and isinstance(value, dict):
        return {key: _walked(schema["values"], named, item, convert) for key, item in value.items()}
    if kind in {"record", "error"} and isinstance(value, dict):
        types = {field["name"]: field["type"] for field in schema["fields"]}
        return {
            name: _walked(types[name], named, member, convert) if name in types else member
            for name, member in value.items()
        }
    return value


def _of_union(branches: list[Node], named: Mapping[str, Node], value: Any, convert: Convert) -> Any:
    """Convert the value of a union, which is null or an object with the name of the branch."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((name, inner),) = value.items()
    for branch in branches:
        if _name_of(branch) == name:
            return {name: _walked(branch, named, inner, convert)}
    return value


def _name_of(branch: Node) -> Any:
    if not isinstance(branch, dict):
        return branch
    return branch.get("name") or _name_of(branch["type"])


def _logical(schema: Mapping[str, Any]) -> tuple[str, str]:
    """Return the logical type and its unit; "" if it has no effect."""
    logical, kind = str(schema["logicalType"]), schema.get("type")
    name, _, unit = logical.rpartition("-")
    if kind == "long" and name in {"timestamp", "local-timestamp"} and unit in _DIGITS:
        return name, unit
    if (logical, kind) in {("time-millis", "int"), ("time-micros", "long")}:
        return name, unit
    if (logical, kind) in {("date", "int"), ("uuid", "string")}:
        return logical, ""
    if kind == "fixed" and (logical, schema.get("size")) in {("uuid", 16), ("duration", 12)}:
        return logical, ""
    if logical == "decimal" and kind in {"bytes", "fixed"}:
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        is_valid = isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= PRECISION_MAX
        return (logical, "") if is_valid and precision else ("", "")
    return "", ""


# From the underlying value to the text.


def _text_of(schema: Mapping[str, Any], value: Any) -> Any:
    match _logical(schema):
        case "decimal", _:
            return _decimal_text(schema, value.encode("latin-1"))
        case "date", _:
            return _date_text(value) if value in _DAYS else value
        case "time", unit:
            scale = 10 ** _DIGITS[unit]
            return _time_text(value, _DIGITS[unit]) if 0 <= value < _DAY_S * scale else value
        case ("timestamp" | "local-timestamp") as name, unit:
            days, rest = divmod(value, _DAY_S * 10 ** _DIGITS[unit])
            zone = "Z" if name == "timestamp" else ""
            return f"{_date_text(days)}T{_time_text(rest, _DIGITS[unit])}{zone}" if days in _DAYS else value
        case "uuid", _:
            return value if schema["type"] == "string" else str(UUID(bytes=value.encode("latin-1")))
        case "duration", _:
            months, days, ms = struct.unpack("<III", value.encode("latin-1"))
            return f"P{months}M{days}DT{ms // 1000}.{ms % 1000:03}S"
    return value


def _decimal_text(schema: Mapping[str, Any], data: bytes) -> str:
    if len(data) > _DECIMAL_BYTES_MAX:
        raise SchemaError(f"it has a decimal of {counted(len(data), 'byte')}; at most {_DECIMAL_BYTES_MAX} are read")
    number = int.from_bytes(data, "big", signed=True)
    scale = schema.get("scale", 0)
    digits = str(abs(number)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if number < 0 else text


def _date_text(days: int) -> str:
    return (_EPOCH + timedelta(days=days)).date().isoformat()


def _time_text(value: int, digits: int) -> str:
    seconds, fraction = divmod(value, 10**digits)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:0{digits}}"


# From the text to the underlying value.


def _value_of(schema: Mapping[str, Any], value: Any) -> Any:
    name, unit = _logical(schema)
    if name == "decimal":
        return _decimal_value(schema, value)
    if not isinstance(value, str):
        return value
    problem = SchemaError(f"'{value[:60]}' is not a {schema['logicalType']}")
    try:
        match name:
            case "date":
                return _days(_matched(_DATE, value))
            case "time":
                return _ticks(_matched(_TIME, value), _DIGITS[unit])
            case "timestamp" | "local-timestamp":
                zone = "Z" if name == "timestamp" else ""
                parts = _matched(f"{_DATE}T{_TIME}{zone}", value)
                return _days(parts[:3]) * _DAY_S * 10 ** _DIGITS[unit] + _ticks(parts[3:], _DIGITS[unit])
            case "uuid":
                return value if schema["type"] == "string" else UUID(value).bytes.decode("latin-1")
            case "duration":
                return _duration_value(value)
    except (ValueError, OverflowError, struct.error):
        raise problem from None
    return value


def _matched(pattern: str, text: str) -> tuple[str | None, ...]:
    match = re.fullmatch(pattern, text, re.ASCII)
    if match is None:
        raise ValueError(text)
    return match.groups()


def _days(parts: tuple[str | None, ...]) -> int:
    year, month, day = (int(part or 0) for part in parts)
    return (datetime(year, month, day, tzinfo=UTC) - _EPOCH).days


def _ticks(parts: tuple[str | None, ...], digits: int) -> int:
    hours, minutes, seconds = (int(part or 0) for part in parts[:3])
    fraction = (parts[3] or "").ljust(digits, "0")
    if hours > 23 or minutes > 59 or seconds > 59 or fraction[digits:].strip("0"):
        raise ValueError(fraction)
    per_second: int = 10**digits
    return (hours * 3600 + minutes * 60 + seconds) * per_second + int(fraction[:digits])


def _duration_value(text: str) -> str:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(text)
    ms = int(match[3]) * 1000 + int((match[4] or "").ljust(3, "0"))
    return struct.pack("<III", int(match[1]), int(match[2]), ms).decode("latin-1")


def _decimal_value(schema: Mapping[str, Any], value: Any) -> Any:
    """Return the unscaled number as bytes; a number of JSON is one that `Decimal` has read.

    fastavro refuses schemas whose precision does not fit into the size of a fixed.
    """
    text = str(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else value
    scale, precision = schema.get("scale", 0), schema["precision"]
    what = f"a decimal with {precision} digits, {scale} of them after the point"
    if not isinstance(text, str) or not _DECIMAL.fullmatch(text):
        raise SchemaError(f"{str(text)[:60]!r} is not {what}")
    whole, _, fraction = text.partition(".")
    digits = whole.lstrip("-") + fraction.ljust(scale, "0")
    if fraction[scale:].strip("0") or len(digits[: len(digits) - len(fraction[scale:])].lstrip("0")) > precision:
        raise SchemaError(f"'{text[:60]}' is not {what}")
    number = int(digits[: len(digits) - len(fraction[scale:])]) * (-1 if text.startswith("-") else 1)
    size = schema["size"] if schema["type"] == "fixed" else number.bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True).decode("latin-1")
