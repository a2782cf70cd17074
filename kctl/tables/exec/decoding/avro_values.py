"""Decodes Avro into columns with fastavro."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kctl.client.registry.avro import AvroCodec
from kctl.client.registry.schema import Schema
from kctl.tables.exec.decoding.registry_values import RegistryDecoder
from kctl.tables.exec.schema.avro_columns import prepared


class AvroDecoder(RegistryDecoder):
    """Avro without header, or in the wire format of registries."""

    def reader_of(self, schema: Schema) -> Callable[[bytes], Any]:
        """See RegistryDecoder."""
        return AvroCodec(prepared(schema)).datum
