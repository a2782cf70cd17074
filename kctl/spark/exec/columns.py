"""The columns of an exported file: those of Spark's Kafka source, with its names; keys and values may be decoded."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kctl.spark.exec.arrow_types import TIMESTAMP, arrow_type
from kctl.spark.exec.column_types import UNDECODED, Columns, Decoding, Struct
from kctl.spark.exec.header_form import HEADER_LIST, HeaderForm
from kctl.spark.exec.headers import headers_type

CALENDAR_US = range(-62_135_596_800_000_000, 253_402_300_800_000_000)
"""The years 1 to 9999."""

_RECORD_FIELDS = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]


INCARNATION = pa.field("incarnation", pa.int32())
"""In tables: null for the first topic of a name; 1, 2 and so on after it was created again or truncated."""


REASON = pa.field("reason", pa.string())
"""In dead letters: why the record does not fit."""


def schema(
    *,
    include_headers: bool,
    has_incarnation: bool = False,
    columns: Columns = UNDECODED,
    headers: HeaderForm = HEADER_LIST,
) -> pa.Schema:
    """The Arrow schema of a file; undecoded, Spark reads it as the schema of its Kafka source."""
    return pa.schema(
        [
            *fields_of("key", columns.key),
            *fields_of("value", columns.value),
            *_RECORD_FIELDS,
            *([pa.field("headers", headers_type(headers))] if include_headers else []),
            *([INCARNATION] if has_incarnation else []),
        ]
    )


def fields_of(name: str, decoding: Decoding) -> list[pa.Field]:
    """The columns of keys or values: `name`, and `name_rest` with JSON of what has no column.

    A struct without fields, which files cannot have, is left out until a field is known.
    """
    fields = [] if decoding.type == Struct() else [pa.field(name, arrow_type(decoding.type))]
    return [*fields, pa.field(f"{name}_rest", pa.string())] if decoding.has_rest else fields


def within_calendar(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with timestamps of the years 1 to 9999; others become the first or last of these.

    The libraries of table formats fail on others, for example of a producer that gave microseconds for milliseconds.
    """
    index = batch.schema.get_field_index("timestamp")
    microseconds = batch.column(index).cast(pa.int64()).to_numpy()
    if not len(microseconds) or (microseconds.min() >= CALENDAR_US.start and microseconds.max() < CALENDAR_US.stop):
        return batch
    clipped = pa.array(np.clip(microseconds, CALENDAR_US.start, CALENDAR_US.stop - 1)).view(TIMESTAMP)
    return batch.set_column(index, batch.schema.field(index), clipped)


def with_reason(batch: pa.RecordBatch, reason: str) -> pa.RecordBatch:
    """Records as dead letters."""
    return batch.append_column(REASON, pa.repeat(pa.scalar(reason, REASON.type), batch.num_rows))


def with_incarnation(batch: pa.RecordBatch, incarnation: int) -> pa.RecordBatch:
    """The batch with the column `incarnation`, unless it is 0."""
    if not incarnation:
        return batch
    column = pa.repeat(pa.scalar(incarnation, INCARNATION.type), batch.num_rows)
    return batch.append_column(INCARNATION, column)
