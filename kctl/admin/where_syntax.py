"""Parses the expressions of `--where`.  Pure.

    condition   any { "or" any }        any   not { "and" not }        not   [ "not" ] test
    test        operand [ ( == != < <= > >= in, not in ) operand ]  |  exists ( path )  |  ( condition )
    operand     path  |  literal  |  [ literal, ... ]
    path        ( key value headers partition offset timestamp ) { .NAME | [INDEX] | ["NAME"] }
    literal     "text"  'text'  12  -1.5e3  true  false  null

`not`, `and` and `or` bind in this order.  Both kinds of quotes accept the escapes of JSON.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple, get_args

from kctl.admin.where import (
    All,
    Comparison,
    Condition,
    Constant,
    Either,
    Exists,
    Field,
    IsTrue,
    Json,
    Not,
    Operand,
    Operator,
    Path,
)
from kctl.errors import UsageError

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
