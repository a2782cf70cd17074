"""The columns of an exported file: those of Spark's Kafka source, with its names and types."""

from __future__ import annotations

import pyarrow as pa

HEADER_FIELDS = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
HEADERS = pa.list_(pa.field("element", pa.struct(HEADER_FIELDS)))
TIMESTAMP = pa.timestamp("us", tz="UTC")

_RECORD_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]


def schema(*, include_headers: bool) -> pa.Schema:
    """The Arrow schema of a file; Spark reads it as the schema of its Kafka source."""
    return pa.schema([*_RECORD_FIELDS, pa.field("headers", HEADERS)] if include_headers else _RECORD_FIELDS)
