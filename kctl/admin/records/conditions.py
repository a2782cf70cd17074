"""Conditions on records: the expressions of `--where`, their syntax tree and its evaluation.  Pure."""

from __future__ import annotations

import json
import operator as operators
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from kctl.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kctl.records.header import Record


# Conditions on records: the syntax tree of `--where`, and its evaluation. Pure.
#
# `kctl.admin.records.conditions` parses the text. An evaluation visits every node at most once, so its time is bounded
# by the length of the expression and the size of the record. Nothing of an expression is executed as Python.


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


# Parses the expressions of `--where`. Pure.
#
#     condition   any { "or" any }        any   not { "and" not }        not   [ "not" ] test
#     test        operand [ ( == != < <= > >= in, not in ) operand ]  |  exists ( path )  |  ( condition )
#     operand     path  |  literal  |  [ literal, ... ]
#     path        ( key value headers partition offset timestamp ) { .NAME | [INDEX] | ["NAME"] }
#     literal     "text"  'text'  12  -1.5e3  true  false  null
#
# `not`, `and` and `or` bind in this order. Both kinds of quotes accept the escapes of JSON.


EXPRESSION_CHARACTERS_MAX = 10_000
NESTING_MAX = 50
"""Parentheses, lists and `not` within each other."""

_FIELDS: tuple[Field, ...] = get_args(Field)
_ORDERING: dict[str, Operator] = {"==": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "in": "in"}
_LITERALS: dict[str, Json] = {"true": True, "false": False, "null": None}
_KEYWORDS = frozenset({"and", "or", "not", "in", "exists", *_LITERALS})
_INDEX = re.compile(r"-?[0-9]{1,9}")
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
    | (?P<name>[^\W\d][\w-]*)
    | (?P<text>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
    | (?P<sign>==|!=|<=|>=|[<>()\[\],.]))""",
    re.VERBOSE | re.DOTALL,
)


class WhereError(UsageError):
    """An invalid expression; `position` counts its characters from 1."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(f"--where: {problem} at position {position}")
        self.position = position


class _Token(NamedTuple):
    kind: str
    """number, name, text, sign, or end."""
    text: str
    position: int

    @property
    def shown(self) -> str:
        """The token in an error."""
        return "the end" if self.kind == "end" else f"'{self.text[:40]}'"


def parse_where(expression: str) -> Condition:
    """The condition that the text describes.  Raises WhereError."""
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise WhereError(f"more than {EXPRESSION_CHARACTERS_MAX:,} characters", EXPRESSION_CHARACTERS_MAX + 1)
    parser = _Parser(_tokens(expression))
    condition = parser.condition()
    parser.expect_end()
    return condition


def parse_path(text: str, option: str) -> Path:
    """A path alone, such as `value.items[0].id`.  Raises UsageError; `option` names the option in its text."""
    try:
        if len(text) > EXPRESSION_CHARACTERS_MAX:
            raise WhereError(f"more than {EXPRESSION_CHARACTERS_MAX:,} characters", EXPRESSION_CHARACTERS_MAX + 1)
        parser = _Parser(_tokens(text))
        path = parser.path()
        parser.expect_end()
    except WhereError as error:
        raise UsageError(str(error).replace("--where", option, 1)) from None
    return path


def _tokens(expression: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    end = len(expression.rstrip())
    while position < end:
        found = _TOKEN.match(expression, position)
        if found is None:
            blank = len(expression) - len(expression[position:].lstrip())
            wrong = expression[blank]
            if wrong in "\"'":
                raise WhereError("text without its closing quote", blank + 1)
            hint = "; equality is ==" if wrong == "=" else ""
            raise WhereError(f"unexpected '{wrong}'{hint}", blank + 1)
        kind = str(found.lastgroup)
        tokens.append(_Token(kind, found[kind], found.start(kind) + 1))
        position = found.end()
    return [*tokens, _Token("end", "", end + 1)]


class _Parser:
    """A recursive descent; the depth is limited by NESTING_MAX."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def condition(self) -> Condition:
        conditions = [self._conjunction()]
        while self._accept("name", "or"):
            conditions.append(self._conjunction())
        return conditions[0] if len(conditions) == 1 else Either(tuple(conditions))

    def expect_end(self) -> None:
        if self._peek.kind != "end":
            raise self._error("'and', 'or' or the end")

    def _conjunction(self) -> Condition:
        conditions = [self._negation()]
        while self._accept("name", "and"):
            conditions.append(self._negation())
        return conditions[0] if len(conditions) == 1 else All(tuple(conditions))

    def _negation(self) -> Condition:
        if not self._accept("name", "not"):
            return self._test()
        self._enter()
        condition = Not(self._negation())
        self._depth -= 1
        return condition

    def _test(self) -> Condition:
        if self._accept("sign", "("):
            self._enter()
            condition = self.condition()
            self._expect(")")
            self._depth -= 1
            return condition
        if self._accept("name", "exists"):
            self._expect("(")
            path = self.path()
            self._expect(")")
            return Exists(path)
        left = self._operand()
        if self._accept("name", "not"):
            if not self._accept("name", "in"):
                raise self._error("'in'")
            return Not(Comparison(left, "in", self._operand()))
        operator = _ORDERING.get(self._peek.text) if self._peek.kind in {"sign", "name"} else None
        if operator is None:
            return IsTrue(left)
        self._next += 1
        return Comparison(left, operator, self._operand())

    def _operand(self) -> Operand:
        if self._peek.kind == "name" and self._peek.text not in _LITERALS:
            return self.path()
        return Constant(self._literal())

    def _literal(self) -> Json:
        token = self._peek
        if token.kind == "sign" and token.text == "[":
            return self._list()
        if token.kind == "name" and token.text in _LITERALS:
            self._next += 1
            return _LITERALS[token.text]
        if token.kind == "text":
            self._next += 1
            return _unquoted(token)
        if token.kind == "number":
            self._next += 1
            return _number(token)
        raise self._error("a field, a text, a number, true, false, null or a list")

    def _list(self) -> Json:
        self._expect("[")
        self._enter()
        values: list[Json] = []
        if not self._accept("sign", "]"):
            values.append(self._literal())
            while self._accept("sign", ","):
                values.append(self._literal())
            self._expect("]")
        self._depth -= 1
        return values

    def path(self) -> Path:
        token = self._peek
        field = next((one for one in _FIELDS if token.kind == "name" and one == token.text), None)
        if field is None:
            what = f"a field ({', '.join(_FIELDS)})"
            raise self._error(f"{what}; a text has quotes" if token.text not in _KEYWORDS else what)
        self._next += 1
        steps: list[str | int] = []
        while True:
            if self._accept("sign", "."):
                if self._peek.kind != "name":
                    raise self._error("a name")
                steps.append(self._peek.text)
                self._next += 1
            elif self._accept("sign", "["):
                steps.append(self._step())
                self._expect("]")
            else:
                break
        if steps and field in {"partition", "offset", "timestamp"}:
            raise WhereError(f"{field} is a number and has no fields", token.position)
        return Path(field, tuple(steps))

    def _step(self) -> str | int:
        token = self._peek
        if token.kind == "text":
            self._next += 1
            return _unquoted(token)
        if token.kind == "number" and _INDEX.fullmatch(token.text):
            self._next += 1
            return int(token.text)
        raise self._error("an index or a name in quotes")

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _accept(self, kind: str, text: str) -> bool:
        token = self._peek
        if token.kind != kind or token.text != text:
            return False
        self._next += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._accept("sign", sign):
            raise self._error(f"'{sign}'")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise WhereError(f"more than {NESTING_MAX} levels of nesting", self._peek.position)

    def _error(self, expected: str) -> WhereError:
        return WhereError(f"expected {expected}, not {self._peek.shown}", self._peek.position)


def _unquoted(token: _Token) -> str:
    """The text between the quotes, with the escapes of JSON."""
    inner = token.text[1:-1]
    if token.text[0] == "'":
        inner = re.sub(r"""\\.|\"""", lambda found: {"\\'": "'", '"': '\\"'}.get(found[0], found[0]), inner)
    try:
        text = str(json.loads(f'"{inner}"', strict=False))
        text.encode()
    except ValueError:  # also UnicodeEncodeError, of an unpaired surrogate
        raise WhereError("invalid escape in a text", token.position) from None
    return text


def _number(token: _Token) -> Json:
    try:
        number: Json = json.loads(token.text)
    except ValueError:
        raise WhereError(f"{token.shown} is not a valid number", token.position) from None
    return number
