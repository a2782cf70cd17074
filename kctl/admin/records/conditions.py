"""Conditions on records: the syntax tree of `--where` and its evaluation on single records.  Pure.

`kctl.admin.records.where` has the language and parses it.  `kctl.tables.exec.selection.row_filter` gives the same tree
to Arrow, for records whose keys and values are columns.  An evaluation visits every node at most once, so its time is
bounded by the length of the condition and the size of the record.  Nothing of a condition is executed as Python.
"""

from __future__ import annotations

import functools
import json
import operator as operators
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from kctl.records.header import Record


Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in"]

RECORD_FIELDS = ("key", "value", "headers", "partition", "offset", "timestamp", "topic")
"""The fields of a record; columns of an export may be further ones."""
COLUMN_FIELDS = ("timestampType", "key_rest", "value_rest")


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

    def __init__(self, topic: str, partition: int, record: Record) -> None:
        self._topic = topic
        self._partition = partition
        self._record = record
        self._json: dict[str, Json | Missing] = {}

    def field(self, name: str) -> Json | Missing:
        """Return the field itself: text for `key` and `value`, MISSING if they are not UTF-8; None if they are null."""
        record = self._record
        match name:
            case "topic":
                return self._topic
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

    def document(self, name: str) -> Json | Missing:
        """Return the document in which paths below a field start: key or value parsed as JSON; MISSING if it is not
        JSON.
        """
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
    text: str = ""
    """A number as it is written, because a column of decimals is more exact than a float."""

    def read(self, record: RecordView) -> Json | Missing:
        """Return the literal."""
        del record
        return self.value


@dataclass(frozen=True, slots=True)
class Path:
    """A field of the record, and the names and indexes that lead to a value below it."""

    field: str
    steps: tuple[str | int, ...] = ()

    def read(self, record: RecordView) -> Json | Missing:
        """Return the value at the path; MISSING if there is none."""
        if not self.steps:
            return record.field(self.field)
        value = record.document(self.field)
        for step in self.steps:
            if isinstance(value, dict) and isinstance(step, str):
                value = value.get(step, MISSING)
            elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
                value = value[step]
            else:
                return MISSING
        return value

    def __str__(self) -> str:
        return self.field + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps)


Operand: TypeAlias = Constant | Path
Truth: TypeAlias = "bool | None"
"""None is unknown."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two operands; unknown if one of them is null or missing, false if their types cannot be compared."""

    left: Operand
    operator: Operator
    right: Operand

    def holds(self, record: RecordView) -> Truth:
        """Return whether the comparison is true for the record."""
        left, right = self.left.read(record), self.right.read(record)
        if isinstance(left, Missing) or isinstance(right, Missing) or left is None or right is None:
            return None
        match self.operator:
            case "=":
                return _equal(left, right)
            case "!=":
                return not _equal(left, right)
            case "in":
                return _contains(right, left)
            case _:
                return _ordered(left, self.operator, right)


@dataclass(frozen=True, slots=True)
class Like:
    """A text and a pattern; unknown if the text is null or missing, false for another type."""

    operand: Operand
    pattern: str

    def holds(self, record: RecordView) -> Truth:
        """Return whether the pattern describes the whole text."""
        text = self.operand.read(record)
        if text is None or isinstance(text, Missing):
            return None
        return isinstance(text, str) and is_like(text, self.pattern)


@dataclass(frozen=True, slots=True)
class IsNull:
    """True if the operand is null or missing."""

    operand: Operand

    def holds(self, record: RecordView) -> Truth:
        """Return whether the record has no value there."""
        value = self.operand.read(record)
        is_field = isinstance(self.operand, Path) and not self.operand.steps
        return value is None or (isinstance(value, Missing) and not is_field)  # Bytes that are no text are not null.


@dataclass(frozen=True, slots=True)
class Exists:
    """True if the path exists, even if its value is null."""

    path: Path

    def holds(self, record: RecordView) -> Truth:
        """Return whether the path exists in the record."""
        return self.path.read(record) is not MISSING


@dataclass(frozen=True, slots=True)
class IsTrue:
    """An operand alone: true if it is the JSON value `true`."""

    operand: Operand

    def holds(self, record: RecordView) -> Truth:
        """Return whether the operand is `true`."""
        value = self.operand.read(record)
        return None if value is None or isinstance(value, Missing) else value is True


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    condition: Condition

    def holds(self, record: RecordView) -> Truth:
        """Return whether the condition is false for the record."""
        truth = self.condition.holds(record)
        return None if truth is None else not truth


@dataclass(frozen=True, slots=True)
class All:
    """Conditions joined by AND."""

    conditions: tuple[Condition, ...]

    def holds(self, record: RecordView) -> Truth:
        """Return False if one of the conditions is false, True if all are true."""
        combined: Truth = True
        for condition in self.conditions:
            truth = condition.holds(record)
            if truth is False:
                return False
            combined = truth if truth is None else combined
        return combined


@dataclass(frozen=True, slots=True)
class Either:
    """Conditions joined by OR."""

    conditions: tuple[Condition, ...]

    def holds(self, record: RecordView) -> Truth:
        """Return True if one of the conditions is true, False if all are false."""
        combined: Truth = False
        for condition in self.conditions:
            truth = condition.holds(record)
            if truth is True:
                return True
            combined = truth if truth is None else combined
        return combined


Condition: TypeAlias = Comparison | Like | IsNull | Exists | IsTrue | Not | All | Either


def is_like(text: str, pattern: str) -> bool:
    """Return whether the pattern of LIKE describes the whole text."""
    first, *others = _like_parts(pattern)
    if not others:
        return first[0].fullmatch(text) is not None
    *between, last = others
    position, end = first[1], len(text) - last[1]
    if end < position or first[0].match(text) is None or last[0].match(text, end) is None:
        return False
    for part, _ in between:
        match = part.search(text, position, end)
        if match is None:
            return False
        position = match.end()
    return True


@functools.lru_cache(maxsize=100)
def _like_parts(pattern: str) -> tuple[tuple[re.Pattern[str], int], ...]:
    """Return the parts of the pattern between each two %, with their lengths: each describes texts of one length."""
    parts, length = [""], [0]
    for escaped, plain in re.findall(r"\\(.)|(.)", pattern, re.DOTALL):
        if plain == "%":
            parts.append("")
            length.append(0)
        else:
            parts[-1] += "." if plain == "_" else re.escape(escaped or plain)
            length[-1] += 1
    return tuple((re.compile(part, re.DOTALL), count) for part, count in zip(parts, length, strict=True))


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
    """Return whether a list has the element, an object the name, or a text the part."""
    if isinstance(container, list):
        return any(_equal(element, value) for element in container)
    return isinstance(container, (dict, str)) and isinstance(value, str) and value in container


def _ordered(left: Json, operator: Operator, right: Json) -> bool:
    """Compare two numbers, or two texts in the order of their code points; false for other types."""
    compare = _ORDERINGS[operator]
    if isinstance(left, str) and isinstance(right, str):
        return bool(compare(left, right))
    return _is_number(left) and _is_number(right) and bool(compare(left, right))
