"""Hashes records, equal for equal contents on every machine and in every run.

The hash of a record covers its key, value, timestamp, timestamp type and headers, as far as they are compared.  A hash
of many records is the sum of their hashes, each mixed with its offset, so it does not depend on their order.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kctl.tables.exec.schema.arrow_types import TIMESTAMP, VARIANT_TYPE, comparable
from kctl.tables.exec.schema.column_types import raw_name
from kctl.tables.exec.selection.columns import HEADERS, entries_of
from kctl.tables.verification.decoded_values import content

Hashes = NDArray[np.uint64]
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
"""Columns that can be compared, and the types to which those of other writers are cast, except variants."""

_FACTORS = dict(
    zip(
        TYPES,
        (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F),
        strict=True,
    )
)
_RAW_FACTORS = {"key": 0xE7037ED1A0B428DB, "value": 0x8EBC6AF09C88C6E3}
_NULL = 0x6A09E667F3BCC909


def is_comparable(name: str, type_: pa.DataType, *, is_text: bool) -> bool:
    """Return whether a column of a file has the form that Kafka's records have, or is a variant.

    Decoded keys and values are compared too, where a comparison decodes those of the topic.

    `is_text`: the strings of the column are the keys or values of records.  Those of Avro, for example, are not.
    """
    types = pa.types
    if name in {"key", "value"}:
        is_string = types.is_string(type_) or types.is_large_string(type_)
        is_binary = types.is_binary(type_) or types.is_large_binary(type_)
        return bool(is_binary or type_ == VARIANT_TYPE or (is_text and is_string))
    if name == "timestamp":
        return bool(types.is_timestamp(type_) and type_.tz is not None)
    if name == "headers":
        return bool(types.is_list(type_) or types.is_large_list(type_) or types.is_map(type_) or types.is_struct(type_))
    return bool(types.is_integer(type_))


def record_hashes(
    batch: pa.RecordBatch, columns: Collection[str], decoded: Collection[str] = (), raws: Collection[str] = ()
) -> Hashes:
    """Return the hash of each record.  Columns that the batch lacks count as null.

    Those of `decoded` that are not as they are in a record are compared by their contents, with those of their rest.
    The bytes of `raws` are compared as well; a batch has them in a column of their own, or is not decoded.
    Raises NotJson for a rest that is not JSON.

    A variant has other hashes than the JSON of which it was made: the batches to compare must both have variants.
    """
    found = np.zeros(batch.num_rows, np.uint64)
    for name in columns:
        index = batch.schema.get_field_index(name)
        if name in decoded and not _is_raw(batch, index):
            found += _mixed(_content_hashes(batch, name) * np.uint64(_FACTORS[name]))
        elif index >= 0:
            found += _mixed(_column_hashes(batch.column(index), TYPES[name]) * np.uint64(_FACTORS[name]))
        else:
            found += _mixed(np.full(batch.num_rows, _NULL, np.uint64) * np.uint64(_FACTORS[name]))
    for name in raws:
        own = batch.schema.get_field_index(raw_name(name))
        index = batch.schema.get_field_index(name) if own < 0 else own
        if _is_raw(batch, index):
            found += _mixed(binary_hashes(batch.column(index)) * np.uint64(_RAW_FACTORS[name]))
    return _mixed(found)


def _is_raw(batch: pa.RecordBatch, index: int) -> bool:
    """Return whether a column has keys or values as they are in records, as those of dead letters have."""
    if index < 0:
        return False
    type_ = batch.column(index).type
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def _content_hashes(batch: pa.RecordBatch, name: str) -> Hashes:
    """Return the hash of each decoded key or value; a file without a column cannot tell null from an empty object."""
    both = [
        comparable(batch.column(column)).to_pylist() if column in batch.schema.names else [None] * batch.num_rows
        for column in (name, f"{name}_rest")
    ]
    contents = [content(value, rest) for value, rest in zip(*both, strict=True)]
    return binary_hashes(pa.array(contents, pa.binary()))


def at_offsets(hashes: Hashes, offsets: NDArray[np.int64]) -> Hashes:
    """Return the terms of the hash of many records."""
    return _mixed(hashes + offsets.astype(np.uint64) * np.uint64(0x2545F4914F6CDD1D))


def _column_hashes(column: pa.Array, type_: pa.DataType) -> Hashes:
    if column.type == VARIANT_TYPE:
        metadata, value = (binary_hashes(column.field(name)) for name in ("metadata", "value"))
        return _with_nulls(_mixed(_mixed(metadata) + value), column)
    column = entries_of(column) if type_ == HEADERS else column.cast(type_)
    if pa.types.is_binary(column.type):
        return binary_hashes(column)
    if pa.types.is_list(column.type):
        return _list_hashes(column)
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
    return _with_nulls(_mixed(numbers), column)


def binary_hashes(column: pa.Array) -> Hashes:
    """Return the hash of each key or value."""
    digests = b"".join(blake2b(value or b"", digest_size=8).digest() for value in column.to_pylist())
    return _with_nulls(np.frombuffer(digests, "<u8").astype(np.uint64), column)


def _list_hashes(column: pa.ListArray) -> Hashes:
    """Return the hashes of headers, which depend on their order."""
    counts = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    entries = column.flatten()
    keys = binary_hashes(entries.field("key").cast(pa.binary()))
    values = binary_hashes(entries.field("value"))
    rows = np.repeat(np.arange(len(counts)), counts)
    places = (np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]).astype(np.uint64)
    found = np.zeros(len(counts), np.uint64)
    np.add.at(found, rows, _mixed(_mixed(keys) + values * np.uint64(3) + places))
    # No headers are null in exports, and may be an empty list in files of other writers.
    found[counts == 0] = _NULL
    return found


def _with_nulls(hashes: Hashes, column: pa.Array) -> Hashes:
    if column.null_count:
        hashes = hashes.copy()
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _mixed(numbers: Hashes) -> Hashes:
    """Return the finalizer of SplitMix64: each bit of the number affects all bits of the result."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
