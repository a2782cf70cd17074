"""JSON values and the types of columns: inference from a sample, and the division of a value by a type.  Pure.

Inference: a field has the type of the majority of its values, if that is MAJORITY_PERCENT of those in the sample that
are not null.  Whole numbers are int64, others double, both together double; texts are strings.  A field without such a
majority, with mostly whole numbers beyond 64 bits, or with nothing but empty lists and objects has no column.

Nothing of a value is lost: what has no column, or another type than its columns, is in the rest, with the structure of
the value, but without nulls.  A list with such an item is in the rest as a whole.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from kctl.limits import EXPORT_COLUMN_DEPTH_MAX, EXPORT_COLUMNS_MAX
from kctl.tables.exec.schema.column_types import (
    STRING,
    ListOf,
    Struct,
    Type,
    alternative_name,
    alternatives,
    decimal_of,
    is_alternative,
    is_column_name,
    kind_of,
)
from kctl.tables.exec.schema.json_text import NotJson, Number, parse

NOTHING: Any = object()
"""The absence of a rest; None is the JSON value null."""
MAJORITY_PERCENT = 90
_INT64_END = 2**63
WHOLE_END = 2.0**53
"""Below this number, doubles have every whole number; this or a larger one may have been rounded."""
_OBJECT, _LIST, _OTHER = "object", "list", "other"


def inferred(texts: Iterable[str | bytes]) -> Struct:
    """Return the columns of JSON objects; texts that are not objects are ignored."""
    sample = _Sample()
    for text in texts:
        try:
            value = parse(text)
        except NotJson:
            continue
        if isinstance(value, dict):
            sample.add(value, 0)
    kept = sample.type([EXPORT_COLUMNS_MAX])
    return kept if isinstance(kept, Struct) else Struct()


class _Sample:
    """The values of a field in a sample."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self._members: dict[str, _Sample] = {}
        """Of values that are objects."""
        self._items: _Sample | None = None
        """Of values that are lists."""

    def add(self, value: Any, depth: int) -> None:
        """Count a value; null has no kind."""
        if value is None:
            return
        kind = _OTHER if depth > EXPORT_COLUMN_DEPTH_MAX else _kind(value)
        self._kinds[kind] += 1
        if kind == _OBJECT:
            for name, member in value.items():
                self._members.setdefault(name, _Sample()).add(member, depth + 1)
        elif kind == _LIST:
            self._items = self._items or _Sample()
            for item in value:
                self._items.add(item, depth + 1)

    def type(self, room: list[int]) -> Type | None:
        """Return the type of the column, or None; `room` is the number of columns that may still be added."""
        kinds = self._kinds.copy()
        if "double" in kinds:
            kinds["double"] += kinds.pop("int64", 0)
        ((kind, count),) = kinds.most_common(1) or [(_OTHER, 0)]
        if kind == _OTHER or count * 100 < kinds.total() * MAJORITY_PERCENT:
            return None
        if kind == _OBJECT:
            return self._struct(room)
        if kind == _LIST:
            item = self._items.type(room) if self._items else None
            return None if item is None else ListOf(item)
        if not room[0]:
            return None
        room[0] -= 1
        return kind

    def _struct(self, room: list[int]) -> Struct | None:
        kept: list[tuple[str, Type]] = []
        taken: set[str] = set()
        for name, member in self._members.items():
            if name.lower() in taken or not is_column_name(name) or is_alternative(name, self._members):
                continue
            if (type_ := member.type(room)) is not None:
                kept.append((name, type_))
                taken.add(name.lower())
        return Struct(tuple(kept)) if kept else None


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "int64" if -_INT64_END <= value < _INT64_END else _OTHER
        case float():
            return "double" if math.isfinite(value) else _OTHER
        case str():
            return STRING
        case dict():
            return _OBJECT
    return _LIST


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
            return _converted(value, type_), NOTHING
    misplaced.append(Misplaced(path, kind_of(type_)))
    return None, value


def _divided_object(
    value: dict[str, Any], fields: dict[str, Type], path: str, misplaced: list[Misplaced]
) -> tuple[dict[str, Any], Any]:
    fitting: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, member in value.items():
        left: Any = NOTHING
        if name in fields and not is_alternative(name, fields):
            count = len(misplaced)
            fitting[name], left = divided(member, fields[name], f"{path}.{name}", misplaced)
            if left is not NOTHING and (found := _in_alternative(name, member, fields, path)):
                del misplaced[count:]
                fitting[name] = None
                fitting[found.column] = found.value
                left = found.rest
                misplaced += found.misplaced
        elif member is not None:
            left = member
            misplaced.append(Misplaced(f"{path}.{name[:NAME_CHARACTERS_MAX]}", ""))
        if left is not NOTHING:
            rest[name] = left
    return fitting, rest or NOTHING


class _Found(NamedTuple):
    """A value in an alternative of its field; an object may have members without a column."""

    column: str
    value: Any
    rest: Any
    misplaced: list[Misplaced]


def _in_alternative(name: str, value: Any, fields: Mapping[str, Type], path: str) -> _Found | None:
    """Divide a value by the first of the other columns of its field that it fits."""
    for type_ in alternatives(name, fields):
        column, places = alternative_name(name, type_), list[Misplaced]()
        fitting, rest = divided(value, type_, f"{path}.{name}", places)
        if rest is NOTHING or (isinstance(type_, Struct) and isinstance(value, dict)):
            return _Found(column, fitting, rest, places)
    return None


def _converted(value: Any, type_: str) -> Any:
    return float(value) if type_ in {"double", "float"} else int(value) if type_ in _INTEGER_ENDS else value


def _fits(value: Any, type_: str) -> bool:
    match value:
        case bool():
            return type_ == "boolean"
        case int():
            if type_ in _INTEGER_ENDS:
                return -_INTEGER_ENDS[type_] <= value < _INTEGER_ENDS[type_]
            return type_ == "double" and _is_exact(value)
        case Number():
            if type_ == "int64":
                return value.is_integer() and abs(value) < WHOLE_END
            return type_ in {"double", "float"} and math.isfinite(value)
        case str():
            return type_ == STRING and _is_utf8(value)
        case datetime():
            return type_ == "timestamp"
        case date():
            return type_ == "date"
        case bytes():
            return type_ == "binary"
        case Decimal():
            number = decimal_of(type_)
            return number is not None and has_digits(value, *number)
    return False


_INTEGER_ENDS = {"int32": 2**31, "int64": _INT64_END}


def has_digits(value: Decimal, precision: int, scale: int) -> bool:
    """Return whether a decimal type has the number without rounding it."""
    _, digits, exponent = value.as_tuple()
    return isinstance(exponent, int) and -exponent <= scale and len(digits) + exponent <= precision - scale


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
