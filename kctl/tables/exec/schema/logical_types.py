"""Which logical types of Avro have columns of their own, by kind of table.  Pure.

A logical type is a column of its kind if the format of the table has it and the usual readers read it, or, with
--logical-types all, if only the format has it.  Otherwise it is the type under it, with the numbers as they are.  The
driver marks those that are columns in the schemas of the plan, and tasks decode what is marked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kctl.client.registry.schema import Schema
from kctl.tables.exec.schema.schema_texts import rewritten

MARK = "kctl-"
"""Prefix of a marked logical type."""
TIME, LOCAL_TIMESTAMP, TIMESTAMP_NS = "time", "local_timestamp", "timestamp_ns"
MARKED: Mapping[str, tuple[str, str]] = {
    "time-millis": ("int", TIME),
    "time-micros": ("long", TIME),
    "local-timestamp-millis": ("long", LOCAL_TIMESTAMP),
    "local-timestamp-micros": ("long", LOCAL_TIMESTAMP),
    "timestamp-nanos": ("long", TIMESTAMP_NS),
}
"""The type under a logical type, and its column."""
PORTABLE = frozenset({LOCAL_TIMESTAMP})
ALL: Mapping[str, frozenset[str]] = {
    "parquet": frozenset({TIME, LOCAL_TIMESTAMP, TIMESTAMP_NS}),
    "iceberg": frozenset({TIME, LOCAL_TIMESTAMP}),
    "delta": frozenset({LOCAL_TIMESTAMP}),
}
"""What the formats have, by the kind of the table; Iceberg has nanoseconds from its version 3 on."""


def columns_of_kind(kind: str, *, has_all: bool) -> frozenset[str]:
    """Return the columns that logical types have in a kind of table."""
    return ALL[kind] if has_all else PORTABLE


def with_marks(schema: Schema, columns: Collection[str]) -> Schema:
    """Return the schema, and those it uses, with marks at the logical types that have one of the columns.

    Raises SchemaError.
    """
    return rewritten(schema, lambda document: _marked(document, columns))


def _marked(schema: Any, columns: Collection[str]) -> Any:
    match schema:
        case list():
            return [_marked(branch, columns) for branch in schema]
        case dict():
            marked = {name: _marked(member, columns) for name, member in schema.items()}
            logical = schema.get("logicalType")
            if isinstance(logical, str) and logical in MARKED:
                under, column = MARKED[logical]
                if schema.get("type") == under and column in columns:
                    marked["logicalType"] = MARK + logical
            return marked
    return schema


class Nanoseconds(int):
    """A time in nanoseconds since 1970 UTC, to distinguish it from a number."""
