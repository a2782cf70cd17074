"""Decodes Avro into columns with fastavro."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from datetime import date, datetime, time
from typing import Any
from uuid import UUID

import fastavro.read
from fastavro import _read_py

from kctl.client.registry.avro import AvroCodec
from kctl.client.registry.schema import Schema, SchemaError
from kctl.tables.exec.decoding.registry_values import RegistryDecoder
from kctl.tables.exec.schema.avro_columns import DURATION, UUID_BYTES, ZONED_TIMESTAMP, is_recursive, prepared
from kctl.tables.exec.schema.column_types import ListOf, MapOf, Struct, Type
from kctl.tables.exec.schema.connect_types import zoned
from kctl.tables.exec.schema.logical_types import MARK, MARKED, Nanoseconds


def _zoned(text: str, _writer: object = None, _reader: object = None) -> datetime:
    return zoned(text)


def _nanoseconds(value: int, _writer: object = None, _reader: object = None) -> Nanoseconds:
    return Nanoseconds(value)


def _uuid(data: bytes, _writer: object = None, _reader: object = None) -> str:
    return str(UUID(bytes=data))


def _duration(data: bytes, _writer: object = None, _reader: object = None) -> str:
    """Return months, days and milliseconds, which a calendar alone can convert into each other, as in ISO 8601."""
    months, days, millis = struct.unpack("<III", data)
    seconds = f"{millis // 1000}.{millis % 1000:03}" if millis % 1000 else str(millis // 1000)
    return f"P{months}M{days}DT{seconds}S"


for _readers in (fastavro.read.LOGICAL_READERS, _read_py.LOGICAL_READERS):
    _readers[f"string-{ZONED_TIMESTAMP}"] = _zoned
    _readers[f"fixed-{UUID_BYTES}"] = _uuid
    _readers[f"fixed-{DURATION}"] = _duration
    for _logical, (_under, _) in MARKED.items():
        _readers[f"{_under}-{MARK}{_logical}"] = (
            _nanoseconds if _logical == "timestamp-nanos" else _read_py.LOGICAL_READERS[f"{_under}-{_logical}"]
        )


class AvroDecoder(RegistryDecoder):
    """Avro without header, or in the wire format of registries."""

    def reader_of(self, schema: Schema) -> Callable[[bytes], Any]:
        """See RegistryDecoder."""
        codec = AvroCodec(prepared(schema))
        if not is_recursive(*codec.parsed):
            return codec.datum
        return lambda payload: _with_texts(codec.datum(payload), self.type)


def _with_texts(value: Any, type_: Type) -> Any:
    """Return a value in which records within themselves are JSON.  Raises SchemaError for too many levels."""
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
                return json.dumps(value, default=_json_of, ensure_ascii=False)
            except (RecursionError, ValueError):
                raise SchemaError("it has too many levels to be JSON") from None
    return value


def _json_of(value: Any) -> Any:
    """Return bytes as in the JSON of Avro, and what JSON has no type for as text."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value.isoformat() if isinstance(value, date | time) else str(value)
