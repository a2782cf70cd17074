"""Conditions on records: the syntax tree of `--where`, and its evaluation.  Pure.

`kctl.admin.where_syntax` parses the text.  An evaluation visits every node at most once, so its time is bounded by the
length of the expression and the size of the record.  Nothing of an expression is executed as Python.
"""

from __future__ import annotations

import json
import operator as operators
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from kctl.records.header import Record

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Operator = Literal["==", "!=", "<", "<=", ">", ">=", "in"]
Field = Literal["key", "value", "headers", "partition", "offset", "timestamp"]


_ORDERINGS: dict[Operator, Callable[[Any, Any], Any]] = {
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}


class Missing:
    """The result of a path that does not exist in a record."""


MISSING = Missing()


class RecordView:
    """The fields of one record for conditions; JSON is parsed at its first use."""

    def __init__(self, partition: int, record: Record) -> None:
        self._partition = partition
        self._record = record
        self._json: dict[str, Json | Missing] = {}

    def field(self, name: Field) -> Json | Missing:
        """The field itself: text for `key` and `value`, MISSING if they are not UTF-8; None if they are null."""
        record = self._record
        match name:
            case "partition":
                return self._partition
            case "offset":
                return record.offset
            case "timestamp":
                return record.timestamp
            case "headers":
                texts = ((header, _text(data)) for header, data in record.headers)
                return {header: text for header, text in texts if not isinstance(text, Missing)}
            case _:
                return _text(record.key if name == "key" else record.value)

    def document(self, name: Field) -> Json | Missing:
        """The document in which paths below a field start: key or value parsed as JSON; MISSING if it is not JSON."""
        if name not in {"key", "value"}:
            return self.field(name)
        if name not in self._json:
            text = self.field(name)
            self._json[name] = _parsed(text) if isinstance(text, str) else MISSING
        return self._json[name]


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal, or a list of literals."""

    value: Json

    def read(self, record: RecordView) -> Json | Missing:
        """The literal."""
        del record
        return self.value


@dataclass(frozen=True, slots=True)
class Path:
    """A field of the record, and the names and indexes that lead to a value below it."""

    field: Field
    steps: tuple[str | int, ...] = ()

    def read(self, record: RecordView) -> Json | Missing:
        """The value at the path; MISSING if there is none."""
        if not self.steps:
            return record.field(self.field)
        found = record.document(self.field)
        for step in self.steps:
            if isinstance(found, dict) and isinstance(step, str):
                found = found.get(step, MISSING)
            elif isinstance(found, list) and isinstance(step, int) and -len(found) <= step < len(found):
                found = found[step]
            else:
                return MISSING
        return found


Operand: TypeAlias = Constant | Path


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two operands; false if one of them is missing, or if their types cannot be compared."""

    left: Operand
    operator: Operator
    right: Operand

    def holds(self, record: RecordView) -> bool:
        """Whether the comparison is true for the record."""
        left, right = self.left.read(record), self.right.read(record)
        if isinstance(left, Missing) or isinstance(right, Missing):
            return False
        match self.operator:
            case "==":
                return _equal(left, right)
            case "!=":
                return not _equal(left, right)
            case "in":
                return _contains(right, left)
            case _:
                return _ordered(left, self.operator, right)


@dataclass(frozen=True, slots=True)
class Exists:
    """True if the path exists, even if its value is null."""

    path: Path

    def holds(self, record: RecordView) -> bool:
        """Whether the path exists in the record."""
        return self.path.read(record) is not MISSING


@dataclass(frozen=True, slots=True)
class IsTrue:
    """An operand alone: true if it is the JSON value `true`."""

    operand: Operand

    def holds(self, record: RecordView) -> bool:
        """Whether the operand is `true`."""
        return self.operand.read(record) is True


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    condition: Condition

    def holds(self, record: RecordView) -> bool:
        """Whether the condition is false for the record."""
        return not self.condition.holds(record)


@dataclass(frozen=True, slots=True)
class All:
    """Conditions joined by `and`."""

    conditions: tuple[Condition, ...]

    def holds(self, record: RecordView) -> bool:
        """Whether all conditions are true for the record."""
        return all(one.holds(record) for one in self.conditions)


@dataclass(frozen=True, slots=True)
class Either:
    """Conditions joined by `or`."""

    conditions: tuple[Condition, ...]

    def holds(self, record: RecordView) -> bool:
        """Whether at least one of the conditions is true for the record."""
        return any(one.holds(record) for one in self.conditions)


Condition: TypeAlias = Comparison | Exists | IsTrue | Not | All | Either


def _text(data: bytes | None) -> str | Missing | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return MISSING


def _parsed(text: str) -> Json | Missing:
    try:
        parsed: Json = json.loads(text)
    except (ValueError, RecursionError):  # ValueError also for integers of thousands of digits
        return MISSING
    return parsed


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _equal(left: Json, right: Json) -> bool:
    """Equality as in JSON: 1 equals 1.0, but neither `true` nor "1"."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(value, right[name]) for name, value in left.items())
    return left == right and (type(left) is type(right) or (_is_number(left) and _is_number(right)))


def _contains(container: Json, value: Json) -> bool:
    """Elements of a list, names of an object, and parts of a text."""
    if isinstance(container, list):
        return any(_equal(one, value) for one in container)
    return isinstance(container, (dict, str)) and isinstance(value, str) and value in container


def _ordered(left: Json, operator: Operator, right: Json) -> bool:
    """Two numbers, or two texts in the order of their code points; false for other types."""
    compare = _ORDERINGS[operator]
    if isinstance(left, str) and isinstance(right, str):
        return bool(compare(left, right))
    return _is_number(left) and _is_number(right) and bool(compare(left, right))
