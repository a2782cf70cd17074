"""The language of `--where`: parses a text into the tree of `kctl.admin.records.conditions`.  Pure.

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
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from kctl.admin.records.conditions import (
    COLUMN_FIELDS,
    RECORD_FIELDS,
    All,
    Comparison,
    Condition,
    Constant,
    Either,
    Exists,
    IsNull,
    IsTrue,
    Json,
    Like,
    Not,
    Operand,
    Operator,
    Path,
)
from kctl.errors import UsageError
from kctl.limits import Subject, bound

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

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIGNS: dict[str, Operator] = {
    "=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="
}  # fmt: skip
_PLAIN_FIELDS = frozenset({"partition", "offset", "timestamp", "topic", "timestampType", "key_rest", "value_rest"})
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
        match = _TOKEN.match(expression, position)
        if match is None:
            blank = len(expression) - len(expression[position:].lstrip())
            wrong = expression[blank]
            if wrong in "\"'":
                raise WhereError("text without its closing quote", blank + 1)
            raise WhereError(f"unexpected '{wrong}'", blank + 1)
        kind = str(match.lastgroup)
        is_keyword = kind == "name" and match[kind].lower() in _KEYWORDS and not _follows_dot(tokens)
        text = match[kind].lower() if is_keyword else match[kind]
        tokens.append(_Token("keyword" if is_keyword else kind, text, match.start(kind) + 1))
        position = match.end()
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
        inner = re.sub(r"""\\.|''|\"""", lambda match: replaced.get(match[0], match[0]), inner, flags=re.DOTALL)
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
