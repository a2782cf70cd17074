"""JSON values and the types of columns: inference from a sample, and the division of a value by a type.  Pure.

Inference: whole numbers are int64, others double, both together double; texts are strings.  A field that has values of
several kinds, whole numbers beyond 64 bits, or nothing but nulls and empty lists and objects has no column.

Nothing of a value is lost: what has no column, or another type than its column, is in the rest, with the structure of
the value, but without nulls.  A list with such an item is in the rest as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from kctl.limits import EXPORT_COLUMN_DEPTH_MAX, EXPORT_COLUMNS_MAX
from kctl.tables.exec.schema.column_types import STRING, ListOf, Struct, Type, is_column_name, kind_of
from kctl.tables.exec.schema.json_text import NotJson, parse

NOTHING: Any = object()
"""The absence of a rest; None is the JSON value null."""
_INT64_END = 2**63
_UNKNOWN = "unknown"
"""The type of nulls and of empty lists and objects, which determine none."""
_MIXED = "mixed"


def inferred(texts: Iterable[str | bytes]) -> Struct:
    """Return the columns of JSON objects; texts that are not objects are ignored."""
    found: Type = Struct()
    for text in texts:
        try:
            value = parse(text)
        except NotJson:
            continue
        if isinstance(value, dict):
            found = _merged(found, _type_of(value, 0))
    kept = _pruned(found, [EXPORT_COLUMNS_MAX])
    return kept if isinstance(kept, Struct) else Struct()


def _type_of(value: Any, depth: int) -> Type:
    if depth > EXPORT_COLUMN_DEPTH_MAX:
        return _MIXED
    match value:
        case None:
            return _UNKNOWN
        case bool():
            return "boolean"
        case int():
            return "int64" if -_INT64_END <= value < _INT64_END else _MIXED
        case float():
            return "double" if math.isfinite(value) else _MIXED
        case str():
            return STRING
        case dict():
            return Struct(tuple((name, _type_of(member, depth + 1)) for name, member in value.items()))
    item: Type = _UNKNOWN
    for element in value:
        item = _merged(item, _type_of(element, depth + 1))
    return ListOf(item)


def _merged(a: Type, b: Type) -> Type:
    match a, b:
        case (_, "unknown"):
            return a
        case ("unknown", _):
            return b
        case Struct(fields), Struct(more):
            together = dict(fields)
            for name, field_type in more:
                together[name] = _merged(together.get(name, _UNKNOWN), field_type)
            return Struct(tuple(together.items()))
        case ListOf(item), ListOf(other):
            return ListOf(_merged(item, other))
        case ("int64", "double") | ("double", "int64"):
            return "double"
    return a if a == b else _MIXED


def _pruned(type_: Type, room: list[int]) -> Type | None:
    """Return the type without fields that have no column; `room` is the number of columns that may still be added."""
    match type_:
        case Struct(fields):
            kept: list[tuple[str, Type]] = []
            taken: set[str] = set()
            for name, field_type in fields:
                if name.lower() in taken or not is_column_name(name):
                    continue
                if (pruned := _pruned(field_type, room)) is not None:
                    kept.append((name, pruned))
                    taken.add(name.lower())
            return Struct(tuple(kept)) if kept else None
        case ListOf(item):
            pruned = _pruned(item, room)
            return None if pruned is None else ListOf(pruned)
    if type_ in {_UNKNOWN, _MIXED} or not room[0]:
        return None
    room[0] -= 1
    return type_


class Misplaced(NamedTuple):
    """Where a value is in the rest instead of a column, such as `value.items[].price`."""

    path: str
    wanted: str
    """The type of the column; empty if there is none."""


NAME_CHARACTERS_MAX = 100
"""Of a name that only records have, in a path."""


def divided(value: Any, type_: Type, path: str, misplaced: list[Misplaced]) -> tuple[Any, Any]:
    """Return what fits the type, and the rest, whose values are added to `misplaced`."""
    if value is None:
        return None, NOTHING
    match type_:
        case Struct(fields) if isinstance(value, dict):
            return _divided_object(value, dict(fields), path, misplaced)
        case ListOf(item) if isinstance(value, list):
            pairs = [divided(element, item, f"{path}[]", misplaced) for element in value]
            is_whole = all(rest is NOTHING for _, rest in pairs)
            return [fitting for fitting, _ in pairs], NOTHING if is_whole else value
        case str() if _fits(value, type_):
            return float(value) if type_ == "double" else value, NOTHING
    misplaced.append(Misplaced(path, kind_of(type_)))
    return None, value


def _divided_object(
    value: dict[str, Any], fields: dict[str, Type], path: str, misplaced: list[Misplaced]
) -> tuple[dict[str, Any], Any]:
    fitting: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, member in value.items():
        if name in fields:
            fitting[name], left = divided(member, fields[name], f"{path}.{name}", misplaced)
        elif member is None:
            left = NOTHING
        else:
            left = member
            misplaced.append(Misplaced(f"{path}.{name[:NAME_CHARACTERS_MAX]}", ""))
        if left is not NOTHING:
            rest[name] = left
    return fitting, rest or NOTHING


def _fits(value: Any, type_: str) -> bool:
    match value:
        case bool():
            return type_ == "boolean"
        case int():
            if type_ == "int64":
                return -_INT64_END <= value < _INT64_END
            return type_ == "double" and _is_exact(value)
        case float():
            return type_ == "double" and math.isfinite(value)
        case str():
            return type_ == STRING and _is_utf8(value)
    return False


def _is_exact(value: int) -> bool:
    """Return whether a double has the number: all up to 2^53, and some larger ones."""
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _is_utf8(text: str) -> bool:
    """Return whether the text has no half of a surrogate pair, which JSON can escape."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
