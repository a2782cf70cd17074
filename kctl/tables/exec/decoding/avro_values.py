"""Decodes Avro into columns with fastavro."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import fastavro.read
from fastavro import _read_py

from kctl.client.registry.avro import AvroCodec
from kctl.client.registry.schema import Schema
from kctl.tables.exec.decoding.registry_values import RegistryDecoder
from kctl.tables.exec.schema.avro_columns import ZONED_TIMESTAMP, prepared
from kctl.tables.exec.schema.connect_types import zoned


def _zoned(text: str, _writer: object = None, _reader: object = None) -> datetime:
    return zoned(text)


for _readers in (fastavro.read.LOGICAL_READERS, _read_py.LOGICAL_READERS):
    _readers[f"string-{ZONED_TIMESTAMP}"] = _zoned


class AvroDecoder(RegistryDecoder):
    """Avro without header, or in the wire format of registries."""

    def reader_of(self, schema: Schema) -> Callable[[bytes], Any]:
        """See RegistryDecoder."""
        return AvroCodec(prepared(schema)).datum
