"""Decodes values of schemas with a reader of each value; Arrow takes all of them at once."""

from __future__ import annotations

import json
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from kctl.client.registry.schema import Schema, SchemaError, split_header
from kctl.tables.exec.decoding.batch_decoder import DecodedColumn
from kctl.tables.exec.schema.arrow_types import arrow_type
from kctl.tables.exec.schema.changes import NotAChange, change_of
from kctl.tables.exec.schema.column_types import (
    NO_ID,
    Decoding,
    ListOf,
    MapOf,
    Struct,
    Type,
    alternative_name,
    alternatives,
    decimal_of,
    is_alternative,
)
from kctl.tables.exec.schema.json_fields import has_digits
from kctl.tables.exec.schema.logical_types import LOCAL_TIMESTAMP, TIME, TIMESTAMP_NS, Nanoseconds
from kctl.tables.exec.schema.schema_texts import schema_of_text

_CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)
_Convert = Callable[[Any], Any]


class RegistryDecoder(ABC):
    """Values of one schema without header, or of the schemas whose ids are in their headers."""

    def __init__(self, decoding: Decoding) -> None:
        """Compile the schemas; raise SchemaError for invalid ones."""
        self.type = decoding.type
        self.has_texts = decoding.levels is not None
        """Whether values may be within others of which the column is text."""
        kind = decoding.format.name
        self._readers = {id_: self.reader_of(schema_of_text(id_, kind, text)) for id_, text in decoding.schemas}
        self._arrow = arrow_type(decoding.type)
        self._has_changes = decoding.has_changes
        self._convert = _converter(decoding.type)

    @abstractmethod
    def reader_of(self, schema: Schema) -> Callable[[bytes], Any]:
        """Return a function from a payload to a value that Arrow takes, which raises SchemaError."""

    def decode(self, raw: pa.Array) -> DecodedColumn:
        """See ColumnDecoder."""
        values: list[Any] = []
        kinds: list[str | None] = []
        misfits: dict[int, str] = {}
        for index, data in enumerate(raw.to_pylist()):
            kind, value = None, None
            try:
                value = None if data is None else self._value(data)
                if self._has_changes:
                    kind, value = change_of(value)
                if self.has_texts:
                    value = _with_texts(value, self.type)
            except (SchemaError, NotAChange) as error:
                value, misfits[index] = None, str(error)
            values.append(value)
            kinds.append(kind)
        array = self._array(values, misfits)
        return DecodedColumn([array, pa.array(kinds, pa.string())] if self._has_changes else [array], misfits)

    def _value(self, data: bytes) -> Any:
        if NO_ID in self._readers:
            return self._readers[NO_ID](data)
        schema_id, payload = split_header(data)
        if schema_id not in self._readers:
            raise SchemaError(f"schema {schema_id} is not one of its subject")
        return self._readers[schema_id](payload)

    def _array(self, values: Sequence[Any], misfits: dict[int, str]) -> pa.Array:
        """Return the column; values that Arrow refuses, such as too large decimals, become null and misfits."""
        try:
            return self._converted(values)
        except _CONVERSION_ERRORS:
            pass
        parts = []
        for index, value in enumerate(values):
            try:
                parts.append(self._converted([value]))
            except _CONVERSION_ERRORS as error:
                parts.append(pa.nulls(1, self._arrow))
                misfits[index] = f"it does not fit its columns: {str(error)[:100]}"
        return pa.concat_arrays(parts)

    def _converted(self, values: Sequence[Any]) -> pa.Array:
        convert = self._convert
        return pa.array(values if convert is None else [convert(value) for value in values], self._arrow)


def _converter(type_: Type) -> _Convert | None:
    """Return a function that makes of a value what Arrow takes; None if it takes the value.

    Maps within a value become lists of pairs, and values that do not fit the column of their field members that have
    the names of its alternatives.
    """
    match type_:
        case Struct(fields):
            inner = {name: convert for name, field_type in fields if (convert := _converter(field_type)) is not None}
            named = dict(fields)
            several = {
                name: {name: field_type, **{alternative_name(name, other): other for other in others}}
                for name, field_type in fields
                if not is_alternative(name, named) and (others := alternatives(name, named))
            }
            if not inner and not several:
                return None

            def convert_struct(value: dict[str, Any] | None) -> dict[str, Any] | None:
                if value is None:
                    return None
                found = dict(value)
                for name, columns in several.items():
                    if (member := found.pop(name, None)) is not None:
                        found[next((column for column in columns if _has(columns[column], member)), name)] = member
                return {name: inner[name](member) if name in inner else member for name, member in found.items()}

            return convert_struct
        case ListOf(item):
            convert_item = _converter(item)
            return (
                None
                if convert_item is None
                else lambda value: None if value is None else [convert_item(element) for element in value]
            )
        case MapOf(value_type):
            convert = _converter(value_type) or _same
            return lambda value: None if value is None else [(name, convert(item)) for name, item in value.items()]
    return None


def _has(type_: Type, value: Any) -> bool:
    """Return whether a column of this type has the value as it is."""
    match value:
        case bool():
            return type_ == "boolean"
        case Nanoseconds():
            return type_ == TIMESTAMP_NS
        case int() | float() if type_ in {"int32", "int64"}:
            is_whole = isinstance(value, int) or (value.is_integer() and abs(value) < _WHOLE_END)
            return is_whole and -_ENDS[type_] <= value < _ENDS[type_]
        case int() | float() if type_ in {"float", "double"}:
            return _as_float(type_, value) == value or value != value  # noqa: PLR0124 - NaN
        case str():
            return type_ == "string"
        case bytes():
            return type_ == "binary"
        case datetime():
            return type_ == ("timestamp" if value.tzinfo else LOCAL_TIMESTAMP)
        case date():
            return type_ == "date"
        case time():
            return type_ == TIME
        case Decimal():
            number = decimal_of(type_) if isinstance(type_, str) else None
            return number is not None and has_digits(value, *number)
        case list() if isinstance(type_, ListOf):
            return all(item is None or _has(type_.item, item) for item in value)
        case dict() if isinstance(type_, MapOf):
            return all(item is None or _has(type_.value, item) for item in value.values())
        case dict() if isinstance(type_, Struct):
            return value.keys() <= dict(type_.fields).keys()
    return False


def _with_texts(value: Any, type_: Type) -> Any:
    """Return a value in which what has a column of text is JSON.  Raises SchemaError for too many levels."""
    match value, type_:
        case dict(), Struct(fields):
            types = dict(fields)
            return {name: _with_texts(member, types[name]) for name, member in value.items() if name in types}
        case list(), ListOf(item):
            return [_with_texts(element, item) for element in value]
        case dict(), MapOf(item):
            return {name: _with_texts(member, item) for name, member in value.items()}
        case ((dict() | list()), "string"):
            try:
                return _json_text(value)
            except (RecursionError, ValueError):
                raise SchemaError("it has too many levels to be JSON") from None
    return value


def _json_text(value: Any) -> str:
    try:
        return json.dumps(value, default=_json_of, ensure_ascii=False, allow_nan=False)
    except ValueError:  # numbers that JSON does not have are texts
        return json.dumps(_finite(value), default=_json_of, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {name: _finite(member) for name, member in value.items()}
        case list():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return str(value)
    return value


def _json_of(value: Any) -> Any:
    """Return bytes as in the JSON of Avro, and what JSON has no type for as text."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value.isoformat() if isinstance(value, date | time) else str(value)


_ENDS = {"int32": 2**31, "int64": 2**63}
_WHOLE_END = 2**53


def _as_float(type_: str, value: float) -> float | None:
    """Return the nearest number that the type has; None if there is none."""
    code = "<f" if type_ == "float" else "<d"
    try:
        (number,) = struct.unpack(code, struct.pack(code, value))
    except OverflowError:
        return None
    return float(number)


def _same(value: Any) -> Any:
    return value
