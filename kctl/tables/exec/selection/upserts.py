"""Options of an export that keeps the current state by key: --mode upsert.  Pure.

Tasks write the changes of a batch, and what follows has one row per key: kctl.tables.upserts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kctl.errors import UsageError
from kctl.tables.exec.schema.column_types import (
    BINARY,
    STRING,
    ChangeFormat,
    Columns,
    Struct,
    Type,
    decimal_of,
    kind_of,
    leaves,
)

CHANGE = "change"
"""The column of changes that says what each one is; the state does not have it."""
KEY_ID = "key_id"
"""The column of changes with the key as bytes, equal for equal keys; the state does not have it."""
TIMESTAMP = "timestamp"
VERSION_COLUMNS = {"valid_from": "timestamp", "valid_to": "timestamp", "is_current": "boolean"}
"""With --history; see kctl.tables.exec.selection.columns."""
KEY_TYPES = frozenset({BINARY, STRING, "boolean", "int32", "int64", "date", "timestamp"})
"""Types of which equal values have equal texts; decimals too."""
ORDER_TYPES = frozenset({STRING, "int32", "int64", "float", "double", "date", "timestamp"})
"""Types with an order; decimals too."""


@dataclass(frozen=True, slots=True)
class UpsertOptions:
    """How changes become the current state.  Raises UsageError."""

    keys: tuple[str, ...] = ()
    """Fields of the value that are the key, such as `id` or `customer.id`; empty: the key of the record."""
    order_by: str = ""
    """A field of the value, or `timestamp`: the row with its highest value is the current one.

    Empty: the record with the highest offset.
    """
    changes: ChangeFormat = ChangeFormat.NONE
    history: bool = False
    """Whether the table keeps earlier rows of keys too, with the times from and to which they were current."""

    def __post_init__(self) -> None:
        for name in (*self.keys, *([self.order_by] if self.order_by else [])):
            if not all(name.split(".")) or set(name) & set(" ,\t\n"):
                raise UsageError(f"'{name}' is not the name of a field of the value, such as id or customer.id")
        if self.history and self.order_by:
            raise UsageError("--history and --order-by exclude each other: versions follow each other by offset")
        if len(set(self.keys)) < len(self.keys):
            raise UsageError("--key-fields has a field twice")

    @property
    def order_path(self) -> tuple[str, ...]:
        """The column and fields by which changes are ordered; empty for offsets."""
        if not self.order_by:
            return ()
        return (TIMESTAMP,) if self.order_by == TIMESTAMP else ("value", *self.order_by.split("."))

    def check(self, columns: Columns) -> None:
        """Raise UsageError if the columns of a topic have no such fields, or of a type that cannot be a key."""
        for name in self.keys:
            type_ = _field_type(columns.value.type, name, "--key-fields")
            _check_type(type_, f"--key-fields: value.{name}", KEY_TYPES, "a key")
        if not self.keys:
            for path, leaf in leaves(columns.key.type, "key"):
                if "[]" in path:
                    raise UsageError(f"{path} is in a list or map, which cannot be part of a key: give --key-fields")
                _check_type(leaf, f"the key of the records: {path}", KEY_TYPES, "a key")
        if self.order_path[1:]:
            type_ = _field_type(columns.value.type, self.order_by, "--order-by")
            _check_type(type_, f"--order-by: value.{self.order_by}", ORDER_TYPES, "an order")


def _field_type(type_: Type, name: str, option: str) -> Type:
    path = name.split(".")
    for index, part in enumerate(path):
        fields = dict(type_.fields) if isinstance(type_, Struct) else {}
        if part not in fields:
            known = (
                f": it has {_listed(list(fields))}" if fields else ", which is not decoded into fields: give --value"
            )
            raise UsageError(f"{option} {name}: the value has no field {'.'.join(path[: index + 1])}{known}")
        type_ = fields[part]
    return type_


FIELDS_SHOWN_MAX = 10


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - FIELDS_SHOWN_MAX} more" if len(names) > FIELDS_SHOWN_MAX else ""
    return ", ".join(names[:FIELDS_SHOWN_MAX]) + more


def _check_type(type_: Type, what: str, allowed: frozenset[str], role: str) -> None:
    if not isinstance(type_, str) or (type_ not in allowed and decimal_of(type_) is None):
        raise UsageError(f"{what} is {kind_of(type_)}, which cannot be {role}")
