"""Decodes values of schemas with a reader of each value; Arrow takes all of them at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from kctl.client.registry.schema import Schema, SchemaError, split_header
from kctl.tables.exec.decoding.batch_decoder import DecodedColumn
from kctl.tables.exec.schema.arrow_types import arrow_type
from kctl.tables.exec.schema.column_types import NO_ID, Decoding, ListOf, MapOf, Struct, Type
from kctl.tables.exec.schema.schema_texts import schema_of_text

_CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)
_Convert = Callable[[Any], Any]


class RegistryDecoder(ABC):
    """Values of one schema without header, or of the schemas whose ids are in their headers."""

    def __init__(self, decoding: Decoding) -> None:
        """Compile the schemas; raise SchemaError for invalid ones."""
        kind = decoding.format.name
        self._readers = {id_: self.reader_of(schema_of_text(id_, kind, text)) for id_, text in decoding.schemas}
        self._arrow = arrow_type(decoding.type)
        self._convert = _converter(decoding.type)

    @abstractmethod
    def reader_of(self, schema: Schema) -> Callable[[bytes], Any]:
        """Return a function from a payload to a value that Arrow takes, which raises SchemaError."""

    def decode(self, raw: pa.Array) -> DecodedColumn:
        """See ColumnDecoder."""
        values: list[Any] = []
        misfits: dict[int, str] = {}
        for index, data in enumerate(raw.to_pylist()):
            try:
                value = None if data is None else self._value(data)
            except SchemaError as error:
                value, misfits[index] = None, str(error)
            values.append(value)
        array = self._array(values, misfits)
        return DecodedColumn([array], misfits)

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
    """Return a function that turns maps within a value into lists of pairs, as Arrow takes them; None without maps."""
    match type_:
        case Struct(fields):
            inner = {name: convert for name, field_type in fields if (convert := _converter(field_type)) is not None}
            if not inner:
                return None
            return lambda value: (
                None
                if value is None
                else {name: inner[name](member) if name in inner else member for name, member in value.items()}
            )
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


def _same(value: Any) -> Any:
    return value
