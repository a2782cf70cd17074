"""Conditions on records: the language of `--where`, its syntax tree, and its evaluation on single records.  Pure.

    condition   any { OR any }        any   not { AND not }        not   [ NOT ] test
    test        operand  |  operand operator operand  |  operand IS [ NOT ] NULL  |  operand [ NOT ] IN container
                operand [ NOT ] LIKE text  |  EXISTS ( path )  |  ( condition )
    operator    =  ==  !=  <>  <  <=  >  >=
    container   operand  |  ( literal, ... )
    operand     path  |  literal  |  [ literal, ... ]
    path        field { .NAME | ."NAME" | [INDEX] | ["NAME"] }
    literal     "text"  'text'  12  -1.5e3  TRUE  FALSE  NULL

NOT, AND and OR bind in this order; keywords may be in small or capital letters.  Both kinds of quotes accept the
escapes of JSON, and '' is a quote within single quotes.

A comparison with null, or with a path that does not exist, is unknown, as in SQL.  A record is selected if the whole
condition is true.  `= NULL` and `!= NULL` are `IS NULL` and `IS NOT NULL`.  LIKE compares a whole text with a pattern,
in which % is any text, _ one character, and \\ takes the meaning from the next one.  A timestamp is compared with
milliseconds, or with a text as in ISO 8601.

`kctl.tables.exec.selection.row_filter` gives the same tree to Arrow, for records whose keys and values are columns.  An
evaluation visits every node at most once, so its time is bounded by the length of the condition and the size of the
record.  Nothing of a condition is executed as Python.
"""

from __future__ import annotations

import functools
import json
import operator as operators
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from kctl.errors import UsageError
from kctl.limits import Subject, bound

if TYPE_CHECKING:
    from collections.abc import Callable

    from kctl.records.header import Record


Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in"]

RECORD_FIELDS = ("key", "value", "headers", "partition", "offset", "timestamp", "topic")
"""The fields of a record; columns of an export may be further ones."""
COLUMN_FIELDS = ("timestampType", "key_rest", "value_rest")
_PLAIN_FIELDS = frozenset({"partition", "offset", "timestamp", "topic", "timestampType", "key_rest", "value_rest"})


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
        found = record.document(self.field)
        for step in self.steps:
            if isinstance(found, dict) and isinstance(step, str):
                found = found.get(step, MISSING)
            elif isinstance(found, list) and isinstance(step, int) and -len(found) <= step < len(found):
                found = found[step]
            else:
                return MISSING
        return found

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
        found = self.operand.read(record)
        is_field = isinstance(self.operand, Path) and not self.operand.steps
        return found is None or (isinstance(found, Missing) and not is_field)  # Bytes that are no text are not null.


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
        found = self.operand.read(record)
        return None if found is None or isinstance(found, Missing) else found is True


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
        found: Truth = True
        for condition in self.conditions:
            truth = condition.holds(record)
            if truth is False:
                return False
            found = truth if truth is None else found
        return found


@dataclass(frozen=True, slots=True)
class Either:
    """Conditions joined by OR."""

    conditions: tuple[Condition, ...]

    def holds(self, record: RecordView) -> Truth:
        """Return True if one of the conditions is true, False if all are false."""
        found: Truth = False
        for condition in self.conditions:
            truth = condition.holds(record)
            if truth is True:
                return True
            found = truth if truth is None else found
        return found


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
        found = part.search(text, position, end)
        if found is None:
            return False
        position = found.end()
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


# Parses conditions.


EXPRESSION_CHARACTERS_MAX = bound(
    Subject.EXPORTS,
    "characters of --where, also of consume and copy",
    10_000,
    "characters",
    on_excess="the command is refused",
)
NESTING_MAX = bound(
    Subject.EXPORTS,
    "levels of parentheses, lists and NOT in --where, also of consume and copy",
    50,
    "levels",
    on_excess="the command is refused",
)

_SIGNS: dict[str, Operator] = {
    "=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="
}  # fmt: skip
_LITERALS: dict[str, Json] = {"true": True, "false": False, "null": None}
_KEYWORDS = frozenset({"and", "or", "not", "in", "is", "like", "exists", *_LITERALS})
_INDEX = re.compile(r"-?[0-9]{1,9}")
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
    | (?P<name>[^\W\d][\w-]*)
    | (?P<text>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.|'')*')
    | (?P<sign>==|!=|<>|<=|>=|[=<>()\[\],.]))""",
    re.VERBOSE | re.DOTALL,
)


class WhereError(UsageError):
    """An invalid expression; `position` counts its characters from 1."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(f"--where: {problem} at position {position}")
        self.position = position


class _Token(NamedTuple):
    kind: str
    """number, name, keyword, text, sign, or end."""
    text: str
    position: int

    @property
    def shown(self) -> str:
        """The token in an error."""
        return "the end" if self.kind == "end" else f"'{self.text[:40]}'"


def parse_where(expression: str) -> Condition:
    """Return the condition that the text describes.  Raises WhereError."""
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise WhereError(f"more than {EXPRESSION_CHARACTERS_MAX:,} characters", EXPRESSION_CHARACTERS_MAX + 1)
    parser = _Parser(_tokens(expression))
    condition = parser.condition()
    parser.expect_end()
    return condition


def parse_path(text: str, option: str) -> Path:
    """Return a path alone, such as `value.items[0].id`.  Raises UsageError; `option` names the option in its text."""
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
            raise WhereError(f"unexpected '{wrong}'", blank + 1)
        kind = str(found.lastgroup)
        is_keyword = kind == "name" and found[kind].lower() in _KEYWORDS and not _follows_dot(tokens)
        text = found[kind].lower() if is_keyword else found[kind]
        tokens.append(_Token("keyword" if is_keyword else kind, text, found.start(kind) + 1))
        position = found.end()
    return [*tokens, _Token("end", "", end + 1)]


def _follows_dot(tokens: list[_Token]) -> bool:
    return bool(tokens) and tokens[-1].kind == "sign" and tokens[-1].text == "."


class _Parser:
    """A recursive descent; the depth is limited by NESTING_MAX."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def condition(self) -> Condition:
        conditions = [self._conjunction()]
        while self._accept("keyword", "or"):
            conditions.append(self._conjunction())
        return conditions[0] if len(conditions) == 1 else Either(tuple(conditions))

    def expect_end(self) -> None:
        if self._peek.kind != "end":
            raise self._error("'and', 'or' or the end")

    def _conjunction(self) -> Condition:
        conditions = [self._negation()]
        while self._accept("keyword", "and"):
            conditions.append(self._negation())
        return conditions[0] if len(conditions) == 1 else All(tuple(conditions))

    def _negation(self) -> Condition:
        if not self._accept("keyword", "not"):
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
        if self._accept("keyword", "exists"):
            self._expect("(")
            path = self.path()
            self._expect(")")
            return Exists(path)
        left = self._operand()
        if self._accept("keyword", "is"):
            is_negated = self._accept("keyword", "not")
            if not self._accept("keyword", "null"):
                raise self._error("'null'")
            return Not(IsNull(left)) if is_negated else IsNull(left)
        is_negated = self._accept("keyword", "not")
        membership = self._membership(left)
        if membership is not None:
            return Not(membership) if is_negated else membership
        if is_negated:
            raise self._error("'in' or 'like'")
        operator = _SIGNS.get(self._peek.text) if self._peek.kind == "sign" else None
        if operator is None:
            return IsTrue(left)
        self._next += 1
        position = self._peek.position
        return _comparison(left, operator, self._operand(), position)

    def _membership(self, left: Operand) -> Condition | None:
        """IN and LIKE; None for other tests."""
        if self._accept("keyword", "in"):
            token = self._peek
            is_list = token.kind == "sign" and token.text == "("
            return _is_in(left, Constant(self._list("(", ")")) if is_list else self._operand(), token.position)
        if self._accept("keyword", "like"):
            token = self._peek
            pattern = self._literal()
            if not isinstance(pattern, str):
                raise WhereError(f"LIKE requires a text, not {token.shown}", token.position)
            return Like(left, pattern)
        return None

    def _operand(self) -> Operand:
        token = self._peek
        if token.kind == "name" or (token.kind == "keyword" and token.text not in _LITERALS):
            return self.path()
        return Constant(self._literal(), token.text if token.kind == "number" else "")

    def _literal(self) -> Json:
        token = self._peek
        if token.kind == "sign" and token.text == "[":
            return self._list("[", "]")
        if token.kind == "keyword" and token.text in _LITERALS:
            self._next += 1
            return _LITERALS[token.text]
        if token.kind == "text":
            self._next += 1
            return _unquoted(token)
        if token.kind == "number":
            self._next += 1
            return _number(token)
        raise self._error("a field, a text, a number, true, false, null or a list")

    def _list(self, start: str, end: str) -> Json:
        self._expect(start)
        self._enter()
        values: list[Json] = []
        if not self._accept("sign", end):
            values.append(self._literal())
            while self._accept("sign", ","):
                values.append(self._literal())
            self._expect(end)
        self._depth -= 1
        return values

    def path(self) -> Path:
        token = self._peek
        field = token.text
        if token.kind != "name" or field not in {*RECORD_FIELDS, *COLUMN_FIELDS}:
            what = f"a field ({', '.join(RECORD_FIELDS)})"
            raise self._error(f"{what}; a text has quotes" if token.kind == "name" else what)
        self._next += 1
        steps: list[str | int] = []
        while True:
            if self._accept("sign", "."):
                if self._peek.kind not in {"name", "text"}:
                    raise self._error("a name")
                steps.append(self._peek.text if self._peek.kind == "name" else _unquoted(self._peek))
                self._next += 1
            elif self._accept("sign", "["):
                steps.append(self._step())
                self._expect("]")
            else:
                break
        if steps and field in _PLAIN_FIELDS:
            raise WhereError(f"{field} has no fields", token.position)
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
    """Return the text between the quotes, with the escapes of JSON."""
    inner = token.text[1:-1]
    if token.text[0] == "'":
        replaced = {"\\'": "'", "''": "'", '"': '\\"'}
        inner = re.sub(r"""\\.|''|\"""", lambda found: replaced.get(found[0], found[0]), inner, flags=re.DOTALL)
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
        number = None
    if number is None or number in {float("inf"), -float("inf")}:
        raise WhereError(f"{token.shown} is not a valid number", token.position)
    return number


def _comparison(left: Operand, operator: Operator, right: Operand, position: int) -> Condition:
    """Return the comparison, in which null and the text of a time have the meaning that the language gives them."""
    null = Constant(None)
    if operator in {"=", "!="} and null in (left, right):
        test = IsNull(left if right == null else right)
        return test if operator == "=" else Not(test)
    return Comparison(_as_time(left, right, position), operator, _as_time(right, left, position))


def _is_in(left: Operand, container: Operand, position: int) -> Condition:
    """Return the test for a value in a list, which may have null."""
    if not (isinstance(container, Constant) and isinstance(container.value, list)):
        return Comparison(left, "in", container)
    values: list[Json] = [value for value in container.value if value is not None]
    test = Comparison(left, "in", _as_time(Constant(values), left, position))
    return test if len(values) == len(container.value) else Either((IsNull(left), test))


def _as_time(operand: Operand, other: Operand, position: int) -> Operand:
    """Return the milliseconds of a text, or of texts in a list, that is compared with a timestamp.

    Raises WhereError.
    """
    if other != Path("timestamp") or not isinstance(operand, Constant):
        return operand
    if isinstance(operand.value, list):
        return Constant([_time_ms(value, position) for value in operand.value])
    return Constant(_time_ms(operand.value, position), operand.text)


def _time_ms(value: Json, position: int) -> Json:
    if not isinstance(value, str):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise WhereError("expected a time as in ISO 8601, such as '2026-11-21T09:30:00Z'", position) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1) / 1000


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
