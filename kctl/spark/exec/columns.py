"""The columns of an exported file: those of Spark's Kafka source, with its names and types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

HEADER_FIELDS = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
HEADERS = pa.list_(pa.field("element", pa.struct(HEADER_FIELDS)))
TIMESTAMP = pa.timestamp("us", tz="UTC")
CALENDAR_US = range(-62_135_596_800_000_000, 253_402_300_800_000_000)
"""The years 1 to 9999."""

_RECORD_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]


INCARNATION = pa.field("incarnation", pa.int32())
"""In tables: null for the first topic of a name; 1, 2 and so on after it was created again or truncated."""


def schema(*, include_headers: bool, has_incarnation: bool = False) -> pa.Schema:
    """The Arrow schema of a file; Spark reads it as the schema of its Kafka source."""
    headers = [pa.field("headers", HEADERS)] if include_headers else []
    return pa.schema([*_RECORD_FIELDS, *headers, *([INCARNATION] if has_incarnation else [])])


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


def with_incarnation(batch: pa.RecordBatch, incarnation: int) -> pa.RecordBatch:
    """The batch with the column `incarnation`, unless it is 0."""
    if not incarnation:
        return batch
    column = pa.repeat(pa.scalar(incarnation, INCARNATION.type), batch.num_rows)
    return batch.append_column(INCARNATION, column)
