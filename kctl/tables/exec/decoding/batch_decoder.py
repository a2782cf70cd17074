"""Decodes the keys and values of a batch of records."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from kctl.errors import UsageError
from kctl.tables.exec.schema.column_types import Columns, Decoding, Format
from kctl.tables.exec.schema.json_fields import Misplaced
from kctl.tables.exec.selection.columns import REASON, fields_of

# Port for decoding a column of keys or values, and its implementation for texts.
#
# Each value is decoded, or there is a reason why it does not fit.


class Occurrences(NamedTuple):
    """How often something occurs, and the index of the first record in which it does."""

    times: int
    first: int


class DecodedColumn(NamedTuple):
    """The columns of all values, null where a value does not fit, and the reasons by index."""

    arrays: Sequence[pa.Array]
    """As many as `fields_of` names."""
    misfits: Mapping[int, str]
    misplaced: Mapping[Misplaced, Occurrences] = MappingProxyType({})
    """The values that are in the column of the rest."""


class ColumnDecoder(Protocol):
    """Decodes the binary column of keys or values."""

    def decode(self, raw: pa.Array) -> DecodedColumn:
        """Return all values.  Raises nothing because of their bytes."""
        ...


class TextDecoder:
    """Keys or values that are UTF-8."""

    def decode(self, raw: pa.Array) -> DecodedColumn:
        """See ColumnDecoder."""
        texts, misfits = decoded_texts(raw)
        return DecodedColumn([texts], misfits)


def decoded_texts(raw: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """Return the values as strings; invalid ones are null and have a reason."""
    try:
        return raw.cast(pa.string()), {}
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    misfits = {}
    for index, value in enumerate(raw.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            texts.append(None)
            misfits[index] = "it is not UTF-8"
    return pa.array(texts, pa.string()), misfits


REASON_CHARACTERS_MAX = 200


class DecodedBatch(NamedTuple):
    """The records that fit, and those that do not as they were, with the column `reason`."""

    fitting: pa.RecordBatch
    misfits: pa.RecordBatch | None
    misplaced: Mapping[Misplaced, Occurrences] = MappingProxyType({})
    """The values that are in columns of the rest; indexes are those of the whole batch."""


class BatchDecoder:
    """Decodes keys and values of the batches of a topic."""

    def __init__(self, columns: Columns) -> None:
        """Load the packages; raise UsageError or PackageMissing if one is missing."""
        self._decoders = {
            name: (decoding, _decoder_of(name, decoding))
            for name, decoding in (("key", columns.key), ("value", columns.value))
            if decoding.format is not Format.BINARY
        }

    def decode(self, batch: pa.RecordBatch) -> DecodedBatch:
        """See DecodedBatch."""
        arrays: dict[str, pa.Array] = {}
        reasons: dict[int, str] = {}
        misplaced: dict[Misplaced, Occurrences] = {}
        for name, (decoding, decoder) in self._decoders.items():
            decoded = decoder.decode(batch.column(name))
            fitted = [*decoded.arrays, batch.column(name)] if decoding.keeps_raw else decoded.arrays
            for field, array in zip(fields_of(name, decoding), fitted, strict=True):
                arrays[field.name] = array
            for index, reason in decoded.misfits.items():
                reasons.setdefault(index, f"{name}: {reason}"[:REASON_CHARACTERS_MAX])
            misplaced |= decoded.misplaced
        fitting = self._replaced(batch, arrays)
        if not reasons:
            return DecodedBatch(fitting, None, misplaced)
        misfits = sorted(reasons)
        return DecodedBatch(
            fitting.filter(pa.array([index not in reasons for index in range(batch.num_rows)], pa.bool_())),
            batch.take(pa.array(misfits, pa.int64())).append_column(
                REASON, pa.array([reasons[index] for index in misfits], pa.string())
            ),
            misplaced,
        )

    def _replaced(self, batch: pa.RecordBatch, arrays: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """Return the columns in the order of `columns.schema`."""
        fields: list[pa.Field] = []
        columns: list[pa.Array] = []
        for field in batch.schema:
            if field.name not in self._decoders:
                fields.append(field)
                columns.append(batch.column(field.name))
                continue
            for typed in fields_of(field.name, self._decoders[field.name][0]):
                fields.append(typed)
                columns.append(arrays[typed.name])
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _decoder_of(name: str, decoding: Decoding) -> ColumnDecoder:
    if decoding.format is Format.STRING:
        return TextDecoder()
    decoder: ColumnDecoder
    if decoding.format is Format.JSON and decoding.has_changes:
        decoder = _module("change_values").JsonChangeDecoder(decoding, name)
    elif decoding.format is Format.JSON:
        decoder = _module("json_values").JsonDecoder(decoding, name)
    elif decoding.format is Format.VARIANT:
        decoder = _module("variant_values").VariantDecoder()
    elif decoding.format is Format.AVRO:
        decoder = _module("avro_values").AvroDecoder(decoding)
    else:
        decoder = _module("protobuf_values").ProtobufDecoder(decoding)
    return decoder


def _module(name: str) -> Any:
    """Return the module of a decoder, whose packages are optional or take long to import."""
    try:
        return importlib.import_module(f"kctl.tables.exec.decoding.{name}")
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is missing: pip install 'kctl-kafka[registry]'") from None
