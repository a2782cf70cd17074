"""What a value of Debezium says about a row.  Pure.

Envelopes have `op` with `before` and `after`; rows that ExtractNewRecordState has unwrapped have `__deleted`.  Values
of Kafka Connect's JSON converter may be in an object with their schema: {"schema": ..., "payload": ...}.

    c, r, u     `after` is the row
    d           the row is deleted; `before` has at least its key
    t           all rows are deleted
    m           a message without a row
    null        the row of the record's key is deleted: the tombstone after `d`, which is what compaction leaves
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from kctl.tables.exec.schema.column_types import Struct, Type, extended
from kctl.tables.exec.schema.connect_types import field_schema


class ChangeKind(StrEnum):
    """What a record does to the state; values of the column `change`."""

    UPSERT = "upsert"
    DELETE = "delete"
    TRUNCATE = "truncate"
    NOTHING = "nothing"


class Change(NamedTuple):
    """A change of a row."""

    kind: ChangeKind
    row: Mapping[str, Any] | None
    """The new row; of a delete the former one, which may lack fields, or None."""


class NotAChange(Exception):
    """The value does not describe a change; the message is the reason."""


DELETED = "__deleted"
BEFORE, AFTER, OPERATION = "before", "after", "op"
TOMBSTONE = Change(ChangeKind.DELETE, None)
_WITH_ROW = ("c", "r", "u")


def payload_of(value: Any) -> tuple[Any, Any]:
    """Return a value of Kafka Connect without the object around it, and its schema; None if there is none."""
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        return value["payload"], value["schema"]
    return value, None


def change_of(value: Any) -> Change:
    """Return the change that a decoded value describes.  Raises NotAChange."""
    if value is None:
        return TOMBSTONE
    if not isinstance(value, dict):
        raise NotAChange("it is not an object")
    operation = value.get(OPERATION)
    if operation is not None and (BEFORE in value or AFTER in value or operation in {"t", "m"}):
        return _of_envelope(operation, value)
    if DELETED in value:
        is_deleted = value[DELETED] in (True, "true")
        row = {name: member for name, member in value.items() if name != DELETED}
        return Change(ChangeKind.DELETE if is_deleted else ChangeKind.UPSERT, row)
    if BEFORE in value or AFTER in value:
        raise NotAChange("it has no op")
    raise NotAChange("it has neither op, before and after, nor __deleted")


def _of_envelope(operation: Any, value: Mapping[str, Any]) -> Change:
    if operation in _WITH_ROW:
        row = value.get(AFTER)
        if not isinstance(row, dict):
            raise NotAChange(f"op is {operation}, and after is not an object")
        return Change(ChangeKind.UPSERT, row)
    match operation:
        case "d":
            before = value.get(BEFORE)
            return Change(ChangeKind.DELETE, before if isinstance(before, dict) else None)
        case "t":
            return Change(ChangeKind.TRUNCATE, None)
        case "m":
            return Change(ChangeKind.NOTHING, None)
    raise NotAChange(f"op is {str(operation)[:20]!r}, not c, r, u, d, t or m")


def is_envelope(type_: Type) -> bool:
    """Return whether a type is that of Debezium's envelopes."""
    names = {name for name, _ in type_.fields} if isinstance(type_, Struct) else set()
    return {OPERATION, BEFORE, AFTER} <= names or {OPERATION, AFTER, "source"} <= names


def row_type(type_: Type) -> Type:
    """Return the type of the rows that values of a type describe."""
    if not isinstance(type_, Struct):
        return type_
    fields = dict(type_.fields)
    if OPERATION in fields and (AFTER in fields or BEFORE in fields):
        rows = [fields[name] for name in (AFTER, BEFORE) if isinstance(fields.get(name), Struct)]
        if not rows:
            return Struct()
        return rows[0] if len(rows) == 1 else extended(rows[0], rows[1], "value", is_strict=False)
    return Struct(tuple(field for field in type_.fields if field[0] != DELETED))


def describes_changes(type_: Type) -> bool:
    """Return whether columns of whole values are those of changes of Debezium, with a schema or without."""
    fields = dict(type_.fields) if isinstance(type_, Struct) else {}
    return DELETED in fields or is_envelope(type_) or is_envelope(fields.get("payload", Struct()))


def row_schema(schema: Any) -> Any:
    """Return the schema of the row in the schema of Kafka Connect of an envelope, or of a row itself."""
    return field_schema(schema, AFTER) or field_schema(schema, BEFORE) or schema
