"""Decodes Avro into columns with fastavro."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import fastavro.read
from fastavro import _read_py

from kctl.client.registry.avro import AvroCodec
from kctl.client.registry.schema import Schema
from kctl.tables.exec.decoding.registry_values import RegistryDecoder
from kctl.tables.exec.schema.avro_columns import DURATION, UUID_BYTES, ZONED_TIMESTAMP, is_recursive, prepared
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
        self.has_texts = self.has_texts or is_recursive(*codec.parsed)
        return codec.datum
