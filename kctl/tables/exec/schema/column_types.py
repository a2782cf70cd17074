"""Types of the columns that keys and values are decoded to, without Arrow, so that plans and drivers have them.  Pure.

As JSON, a type is a name or an object with one member:

    "binary" "string" "boolean" "int32" "int64" "float" "double" "date" "timestamp" "decimal(9,2)"
    "time" "local_timestamp" "timestamp_ns" "variant"
    {"struct": {"id": "int64", "tags": {"list": "string"}, "prices": {"map": "double"}}}

Columns of an export are only added.  A struct gets new fields at its end; a type never changes.  If values of a field
`price` of type int64 become fractions, the column `price__double` is added, which has those that are no int64.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kctl.errors import UsageError
from kctl.limits import EXPORT_COLUMN_DEPTH_MAX, EXPORT_COLUMNS_MAX, Subject, bound

EXPORT_SCHEMA_TYPES_MAX = bound(
    Subject.EXPORTS,
    "types in a schema of keys or values in an export, counted at each place that uses them",
    10_000,
    "types",
    on_excess="the export is refused",
)


BINARY = "binary"
STRING = "string"
_SCALARS = ("int32", "int64", "float", "double", STRING, BINARY, "boolean")
"""In the order in which they are tried for a value that the column of its field does not have."""
_SUFFIX = re.compile(
    rf"{'|'.join(_SCALARS)}|date|timestamp|time|local_timestamp|timestamp_ns|decimal_\d{{1,2}}_\d{{1,2}}|struct|list|map"
)
VARIANT = "variant"
"""A value of JSON of any kind; only a whole key or value has this type."""
DECIMAL_PRECISION_MAX = 38
NAMES = {BINARY, STRING, VARIANT, "boolean", "int32", "int64", "float", "double", "date", "timestamp"} | {
    *("time", "local_timestamp", "timestamp_ns"),  # see kctl.tables.exec.schema.logical_types
}
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
_NAME = re.compile(r"[^ ,;{}()=.\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,255}")
"""Delta refuses the other characters, and Iceberg's paths of nested fields have dots."""
_HELD = {("int64", "int32"), ("double", "int32"), ("double", "float")}
"""(type of a column, type of which it has all values)."""
_WIDER = {
    frozenset({"int32", "int64"}): "int64",
    frozenset({"int32", "double"}): "double",
    frozenset({"float", "double"}): "double",
}


@dataclass(frozen=True, slots=True)
class Struct:
    """Named fields; names are unique, also without regard to case."""

    fields: tuple[tuple[str, Type], ...] = ()


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of items."""

    item: Type


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map from strings to values."""

    value: Type


Type = str | Struct | ListOf | MapOf


class Format(StrEnum):
    """How keys or values are written in records."""

    BINARY = "binary"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    VARIANT = "variant"
    """JSON that is kept as it is, see kctl.tables.exec.decoding.variant_encoding."""


class ChangeFormat(StrEnum):
    """How records describe changes of rows, for exports of the current state by key."""

    NONE = "none"
    """The value is the row, and a null value deletes it."""
    DEBEZIUM = "debezium"
    """Envelopes with op, before and after, or rows with the field __deleted; see kctl.tables.exec.schema.changes."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the keys or values of a topic become columns; part of the plan, so that attempts write equal files."""

    format: Format = Format.BINARY
    type: Type = BINARY
    """The column; a struct without fields is left out."""
    is_strict: bool = False
    """JSON: whether values of another type than their column do not fit; otherwise they go into the rest."""
    schemas: tuple[tuple[int, str], ...] = ()
    """Schemas of writers by their id in a registry; without header, one with the id NO_ID."""
    changes: ChangeFormat = ChangeFormat.NONE
    """How values describe changes; `type` is that of the rows."""
    keeps_raw: bool = False
    """Whether there is a column with the bytes of the record."""
    levels: int | None = None
    """Levels of fields with columns, below which values are text of JSON; None: all."""

    @property
    def has_rest(self) -> bool:
        """Whether there is a column for what the schema lacks."""
        return self.format is Format.JSON

    @property
    def has_changes(self) -> bool:
        """Whether what is decoded says what becomes of the row; otherwise it is the row."""
        return self.changes is not ChangeFormat.NONE

    @property
    def loses_bytes(self) -> bool:
        """Whether the columns do not tell the bytes of the record: white space, order and schema ids are lost."""
        return self.format not in {Format.BINARY, Format.STRING}


NO_ID = -1


@dataclass(frozen=True, slots=True)
class Columns:
    """The decodings of a topic."""

    key: Decoding = field(default_factory=Decoding)
    value: Decoding = field(default_factory=Decoding)

    @property
    def are_typed(self) -> bool:
        """Whether keys or values are decoded."""
        return self.key.format is not Format.BINARY or self.value.format is not Format.BINARY


UNDECODED = Columns()


def raw_name(name: str) -> str:
    """Return the name of the column with the bytes of keys or values."""
    return f"{name}_raw"


def alternative_name(name: str, type_: Type) -> str:
    """Return the name of the column for values of a field that have this type, and not that of its column.

    It is price__double, price__decimal_9_2, price__list and so on.
    """
    match type_:
        case Struct():
            suffix = "struct"
        case ListOf():
            suffix = "list"
        case MapOf():
            suffix = "map"
        case _:
            number = decimal_of(type_)
            suffix = f"decimal_{number[0]}_{number[1]}" if number else type_
    return f"{name}__{suffix}"


def alternatives(name: str, fields: Mapping[str, Type]) -> list[Type]:
    """Return the types of the columns beside that of a field, which have its values of other types."""
    scalars: list[Type] = [type_ for type_ in _SCALARS if fields.get(alternative_name(name, type_)) == type_]
    others = [
        type_
        for column, type_ in fields.items()
        if type_ not in _SCALARS and column.startswith(f"{name}__") and column == alternative_name(name, type_)
    ]
    return [*scalars, *others]


def is_alternative(name: str, fields: Mapping[str, object]) -> bool:
    """Return whether a field has the name of an alternative of another field."""
    base, _, suffix = name.rpartition("__")
    return base in fields and _SUFFIX.fullmatch(suffix) is not None


def _alternative(held: Type, new: Type, *, has_rest: bool) -> Type | None:
    """Return the type of which a field with a column of type `held` needs another column for values of type `new`."""
    return None if _holds(held, new, has_rest=has_rest) or new == Struct() else new


def _holds(held: Type, new: Type, *, has_rest: bool) -> bool:
    """Return whether a column of type `held`, whose structs get more fields, has all values of type `new`.

    Whole numbers of JSON that no double has are in the rest, if there is one.
    """
    match held, new:
        case Struct(), Struct():
            return True
        case (ListOf(inner), ListOf(other)) | (MapOf(inner), MapOf(other)):
            return _holds(inner, other, has_rest=has_rest)
    return held == new or (held, new) in _HELD or (has_rest and (held, new) == ("double", "int64"))


def is_column_name(name: str) -> bool:
    """Return whether all kinds of tables accept the name of a field."""
    return bool(_NAME.fullmatch(name))


def type_to_json(type_: Type) -> Any:
    """See above."""
    match type_:
        case Struct(fields):
            return {"struct": {name: type_to_json(field_type) for name, field_type in fields}}
        case ListOf(item):
            return {"list": type_to_json(item)}
        case MapOf(value):
            return {"map": type_to_json(value)}
    return type_


def type_from_json(document: Any) -> Type:
    """Return the inverse of `type_to_json`.  Raises ValueError."""
    match document:
        case str() if document in NAMES or _DECIMAL.fullmatch(document):
            return document
        case {"struct": dict(fields)}:
            return Struct(tuple((name, type_from_json(field_type)) for name, field_type in fields.items()))
        case {"list": item}:
            return ListOf(type_from_json(item))
        case {"map": value}:
            return MapOf(type_from_json(value))
    raise ValueError(f"{document} is not a type of a column")


def decimal_of(name: str) -> tuple[int, int] | None:
    """Return (precision, scale) of a decimal type; None for other types."""
    found = _DECIMAL.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def decoding_to_json(decoding: Decoding) -> dict[str, Any]:
    """Return a decoding as it is written to plans."""
    return {
        "format": decoding.format.value,
        "type": type_to_json(decoding.type),
        "is_strict": decoding.is_strict,
        "schemas": {str(schema_id): text for schema_id, text in decoding.schemas},
        **({} if decoding.changes is ChangeFormat.NONE else {"changes": decoding.changes.value}),
        **({"keeps_raw": True} if decoding.keeps_raw else {}),
        **({} if decoding.levels is None else {"levels": decoding.levels}),
    }


def columns_to_json(columns: Columns) -> dict[str, Any]:
    """Return the decodings of a topic; nothing if there are none."""
    if not columns.are_typed:
        return {}
    return {"key": decoding_to_json(columns.key), "value": decoding_to_json(columns.value)}


def columns_from_json(document: Mapping[str, Any]) -> Columns:
    """Return the inverse of `columns_to_json`; other members are ignored."""
    return Columns(decoding_from_json(document.get("key")), decoding_from_json(document.get("value")))


def decoding_from_json(document: Any) -> Decoding:
    """Return the inverse of `decoding_to_json`; None, as in plans of earlier versions, is binary."""
    if document is None:
        return Decoding()
    return Decoding(
        Format(document["format"]),
        type_from_json(document["type"]),
        document["is_strict"],
        tuple((int(schema_id), text) for schema_id, text in document["schemas"].items()),
        ChangeFormat(document.get("changes", ChangeFormat.NONE)),
        document.get("keeps_raw", False),
        document.get("levels"),
    )


def cut(type_: Type, levels: int, *, has_texts: bool) -> Type | None:
    """Return the type with this many levels of fields; what is below is text of JSON, or None without `has_texts`.

    A list of something below is text as a whole.
    """
    below = STRING if has_texts else None
    match type_:
        case Struct(fields):
            if not levels:
                return below
            parts = [(name, cut(field_type, levels - 1, has_texts=has_texts)) for name, field_type in fields]
            return Struct(tuple((name, part) for name, part in parts if part is not None))
        case MapOf(value):
            part = cut(value, levels - 1, has_texts=has_texts) if levels else None
            return below if part is None else MapOf(part)
        case ListOf(item):
            part = cut(item, levels, has_texts=has_texts)
            return below if part is None or (part == STRING and item != STRING) else ListOf(part)
    return type_


def extended(held: Type, new: Type, name: str, *, is_strict: bool = True, widens: bool = False) -> Type:
    """`held` with the fields that only `new` has.

    `widens`: no file has the type yet, so that numbers may get a wider type.  If the types of a field differ
    otherwise, it keeps the first one, and the struct gets an alternative for the second.  If the types are not those of
    fields, or of an alternative, UsageError is raised with `is_strict`; else the first one remains.
    """
    match held, new:
        case Struct(fields), Struct(more):
            names = dict(fields)
            added = dict(more)
            merged = []
            for child, type_ in fields:
                other = added.pop(child, type_)
                is_final = (widens and _wider(type_, other)) or is_alternative(child, names)
                if not is_final and (alternative := _alternative(type_, other, has_rest=not is_strict)):
                    column = alternative_name(child, alternative)
                    added[column] = _together(column, alternative, added, f"{name}.{child}", is_strict=is_strict)
                    other = type_
                merged.append((child, extended(type_, other, f"{name}.{child}", is_strict=is_strict, widens=widens)))
            return Struct((*merged, *_without_case_twins(merged, added)))
        case ListOf(item), ListOf(other):
            return ListOf(extended(item, other, f"{name}[]", is_strict=is_strict, widens=widens))
        case MapOf(value), MapOf(other):
            return MapOf(extended(value, other, f"{name}[]", is_strict=is_strict, widens=widens))
    if widens and (wider := _wider(held, new)):
        return wider
    if _holds(held, new, has_rest=not is_strict):
        return held
    if is_strict:
        raise UsageError(
            f"column {name} is {kind_of(held)} and would become {kind_of(new)}: types of columns do not change; use "
            "a schema with the former type, or export to another folder"
        )
    return held


def _together(name: str, type_: Type, added: Mapping[str, Type], path: str, *, is_strict: bool) -> Type:
    """Return the type of an alternative that may be there already."""
    return extended(added[name], type_, path, is_strict=is_strict) if name in added else type_


def _wider(held: Type, new: Type) -> str | None:
    """Return the number type that has all values of two others; None if there is none."""
    if not isinstance(held, str) or not isinstance(new, str) or held == new:
        return None
    decimals = [number for number in map(decimal_of, (held, new)) if number]
    if len(decimals) == 2:
        scale = max(scale for _, scale in decimals)
        precision = max(precision - scale for precision, scale in decimals) + scale
        return f"decimal({precision},{scale})" if precision <= DECIMAL_PRECISION_MAX else None
    return _WIDER.get(frozenset({held, new}))


def _without_case_twins(held: list[tuple[str, Type]], added: dict[str, Type]) -> list[tuple[str, Type]]:
    """Return the added fields whose names differ from those of others in more than case; `bounded` refuses other
    schemas.
    """
    taken = {held_name.lower() for held_name, _ in held}
    kept = []
    for added_name, type_ in added.items():
        if added_name.lower() not in taken:
            taken.add(added_name.lower())
            kept.append((added_name, type_))
    return kept


def check_path(path: Sequence[str], type_: Type, option: str) -> None:
    """Raise UsageError if a path goes into a variant; `type_` is that of its first column."""
    if type_ == VARIANT and path[1:]:
        raise UsageError(f"{option}: {path[0]} is a variant, whose members are not columns: use --{path[0]} json")


def kind_of(type_: Type) -> str:
    """Return the type in one word, for messages."""
    match type_:
        case Struct():
            return "a struct"
        case ListOf():
            return "a list"
        case MapOf():
            return "a map"
    return type_


class TypeCount:
    """Counts the types of a schema while they become columns.

    If each of its records uses another one twice, a small schema stands for exponentially many columns.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._found = 0

    def add(self) -> None:
        """Count a type.  Raises UsageError."""
        self._found += 1
        if self._found > EXPORT_SCHEMA_TYPES_MAX:
            raise UsageError(
                f"the schema of {self._name} has more than {EXPORT_SCHEMA_TYPES_MAX} types, counted at each use"
            )


def bounded(type_: Type, name: str) -> Type:
    """Return the type itself.

    Raises UsageError for too many columns or levels, or a name that tables do not accept.
    """
    columns = leaves(type_, name)
    if len(columns) > EXPORT_COLUMNS_MAX:
        raise UsageError(f"the schema of {name} has {len(columns)} columns; at most {EXPORT_COLUMNS_MAX} are supported")
    _check_names(type_, name, 0)
    return type_


def _check_names(type_: Type, path: str, depth: int) -> None:
    if depth > EXPORT_COLUMN_DEPTH_MAX:
        raise UsageError(f"the schema has more than {EXPORT_COLUMN_DEPTH_MAX} levels at {path[:80]}")
    match type_:
        case Struct(fields):
            if len({name.lower() for name, _ in fields}) < len(fields):
                raise UsageError(f"{path} has fields whose names differ only in case, which tables do not allow")
            for name, field_type in fields:
                if not is_column_name(name):
                    raise UsageError(f"the field {name!r} of {path} has a name that tables do not accept")
                _check_names(field_type, f"{path}.{name}", depth + 1)
        case ListOf(inner) | MapOf(inner):
            _check_names(inner, f"{path}[]", depth + 1)


def leaves(type_: Type, path: str) -> list[tuple[str, str]]:
    """Return (path, type) of all columns below a type: value.id, value.tags[], value.prices[]."""
    match type_:
        case Struct(fields):
            return [leaf for name, field_type in fields for leaf in leaves(field_type, f"{path}.{name}")]
        case ListOf(inner) | MapOf(inner):
            return leaves(inner, f"{path}[]")
    return [(path, type_)]
