"""The language of --where.  Pure.

    condition := condition OR condition | condition AND condition | NOT condition | ( condition )
               | COLUMN = != <> < <= > >= LITERAL
               | COLUMN [NOT] IN ( LITERAL, ... ) | COLUMN [NOT] LIKE 'pattern' | COLUMN IS [NOT] NULL
    LITERAL   := 'text' (with '' for ') | number | true | false

NOT binds closer than AND, and AND closer than OR, as in SQL.  Null makes a comparison unknown, and only records for
which the condition is true are exported.  A column is one of a record, or a field of a decoded key or value such as
value.customer.id; a name with other characters is written in double quotes, as value."unit-price".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from kctl.errors import UsageError
from kctl.limits import Subject, bound
from kctl.tables.exec.column_types import STRING, Columns, Struct, Type, check_path, decimal_of, kind_of

EXPORT_WHERE_CHARACTERS_MAX = bound(
    Subject.EXPORTS,
    "characters of --where of an export",
    4_096,
    "characters",
    on_excess="the export is refused",
)
EXPORT_WHERE_DEPTH_MAX = bound(
    Subject.EXPORTS,
    "levels of parentheses in --where of an export",
    50,
    "levels",
    on_excess="the export is refused",
)


RECORD_TYPES = {
    "topic": STRING,
    "partition": "int32",
    "offset": "int64",
    "timestamp": "timestamp",
    "timestampType": "int32",
}
"""Columns of a record apart from key and value."""
INTEGER_MAX = (1 << 63) - 1
OPERATORS = ("<=", ">=", "<>", "!=", "<", ">", "=")
_TOKEN = re.compile(
    r"""\s*(?: (?P<text>'(?:[^']|'')*') | (?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
    | (?P<name>(?:\w+|"[^"]+")(?:\.(?:\w+|"[^"]+"))*) | (?P<sign><=|>=|<>|!=|<|>|=|\(|\)|,) )""",
    re.VERBOSE,
)
_KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "LIKE", "IS", "NULL", "TRUE", "FALSE"})

Path = tuple[str, ...]
Literal = str | int | float | bool | Decimal | date | datetime | bytes


class Comparison(NamedTuple):
    """COLUMN operator LITERAL."""

    path: Path
    operator: str
    literal: Literal


class IsIn(NamedTuple):
    """COLUMN IN (LITERAL, ...)."""

    path: Path
    literals: tuple[Literal, ...]


class Like(NamedTuple):
    """COLUMN LIKE 'pattern', with % and _."""

    path: Path
    pattern: str


class IsNull(NamedTuple):
    """COLUMN IS NULL."""

    path: Path


class Not(NamedTuple):
    """NOT condition."""

    condition: Condition


class Both(NamedTuple):
    """condition AND condition."""

    left: Condition
    right: Condition


class Either(NamedTuple):
    """condition OR condition."""

    left: Condition
    right: Condition


Condition = Comparison | IsIn | Like | IsNull | Not | Both | Either


def parse_where(text: str) -> Condition:
    """The condition, without the types of its columns.  Raises UsageError."""
    if len(text) > EXPORT_WHERE_CHARACTERS_MAX:
        raise UsageError(f"--where has more than {EXPORT_WHERE_CHARACTERS_MAX} characters")
    return _Parser(text).whole()


def typed(condition: Condition, columns: Columns) -> Condition:
    """The condition with literals of the types of their columns.  Raises UsageError if they do not fit."""
    match condition:
        case Not(one):
            return Not(typed(one, columns))
        case Both(left, right):
            return Both(typed(left, columns), typed(right, columns))
        case Either(left, right):
            return Either(typed(left, columns), typed(right, columns))
        case Comparison(path, operator, literal):
            return Comparison(path, operator, _literal(path, literal, type_of(path, columns)))
        case IsIn(path, literals):
            type_ = type_of(path, columns)
            return IsIn(path, tuple(_literal(path, literal, type_) for literal in literals))
        case Like(path, _):
            if (type_ := type_of(path, columns)) != STRING:
                raise UsageError(f"--where: LIKE requires a string, and {'.'.join(path)} is {kind_of(type_)}")
        case IsNull(path):
            type_of(path, columns)
    return condition


def type_of(path: Path, columns: Columns, option: str = "--where") -> Type:
    """The type of a column.  Raises UsageError if there is none."""
    name = path[0]
    known: dict[str, Type] = {**RECORD_TYPES, "key": columns.key.type, "value": columns.value.type}
    known |= {f"{one}_rest": STRING for one in ("key", "value") if getattr(columns, one).has_rest}
    type_ = known.get(name)
    check_path(path, type_ or Struct(), option)
    for field in path[1:]:
        type_ = dict(type_.fields).get(field) if isinstance(type_, Struct) else None
    if type_ is None:
        raise UsageError(
            f"{option}: there is no column {'.'.join(path)}; --dry-run without this option shows the columns"
        )
    return type_


def _literal(path: Path, literal: Literal, type_: Type) -> Literal:
    """The literal as a value of a column's type."""
    found: Literal | None = None
    if isinstance(literal, bool):
        found = literal if type_ == "boolean" else None
    elif isinstance(literal, str):
        found = _text_as(literal, type_)
    elif isinstance(literal, Decimal) and isinstance(type_, str):
        found = _number_as(literal, type_)
    if found is None:
        raise UsageError(
            f"--where: {'.'.join(path)} is {kind_of(type_)}, which cannot be compared with {literal!s:.40}"
        )
    return found


def _number_as(literal: Decimal, type_: str) -> Literal | None:
    if type_ in {"int32", "int64", "float", "double"} and -INTEGER_MAX <= literal <= INTEGER_MAX:
        return int(literal) if literal == int(literal) else float(literal)
    if digits := decimal_of(type_):
        precision, scale = digits
        is_exact = abs(literal) < 10 ** (precision - scale) and literal == round(literal, scale)
        return literal if is_exact else None
    return None


def _text_as(text: str, type_: Type) -> Literal | None:
    try:
        match type_:
            case "string":
                return text
            case "binary":
                return text.encode()
            case "date":
                return date.fromisoformat(text)
            case "timestamp":
                found = datetime.fromisoformat(text)
                return found if found.tzinfo else found.replace(tzinfo=UTC)
    except ValueError:
        pass
    return None


class _Token(NamedTuple):
    kind: str
    text: str


class _Parser:
    """Recursive descent, one token ahead."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._depth = 0

    def whole(self) -> Condition:
        found = self._either()
        if self._tokens:
            raise _unexpected(self._tokens[0])
        return found

    def _either(self) -> Condition:
        self._depth += 1
        if self._depth > EXPORT_WHERE_DEPTH_MAX:
            raise UsageError(f"--where has more than {EXPORT_WHERE_DEPTH_MAX} levels")
        found = self._both()
        while self._takes("OR"):
            found = Either(found, self._both())
        self._depth -= 1
        return found

    def _both(self) -> Condition:
        found = self._one()
        while self._takes("AND"):
            found = Both(found, self._one())
        return found

    def _one(self) -> Condition:
        is_negated = False
        while self._takes("NOT"):
            is_negated = not is_negated
        if self._takes("("):
            found = self._either()
            self._expect(")")
        else:
            found = self._comparison()
        return Not(found) if is_negated else found

    def _comparison(self) -> Condition:
        token = self._next()
        if token.kind != "name":
            raise _unexpected(token, "a column")
        path = tuple(part[0] or part[1] for part in re.findall(r'"([^"]+)"|(\w+)', token.text))
        if self._takes("IS"):
            is_negated = self._takes("NOT")
            self._expect("NULL")
            return Not(IsNull(path)) if is_negated else IsNull(path)
        is_negated = self._takes("NOT")
        found: Condition
        if self._takes("IN"):
            self._expect("(")
            literals = [self._literal()]
            while self._takes(","):
                literals.append(self._literal())
            self._expect(")")
            found = IsIn(path, tuple(literals))
        elif self._takes("LIKE"):
            pattern = self._literal()
            if not isinstance(pattern, str):
                raise UsageError("--where: LIKE requires a pattern in single quotes")
            found = Like(path, pattern)
        else:
            operator = self._next()
            if is_negated or operator.text not in OPERATORS:
                raise _unexpected(operator, "an operator")
            found = Comparison(path, operator.text.replace("<>", "!="), self._literal())
        return Not(found) if is_negated else found

    def _literal(self) -> Literal:
        token = self._next()
        if token.kind == "text":
            return token.text[1:-1].replace("''", "'")
        if token.kind == "number":
            try:
                return Decimal(token.text)
            except InvalidOperation:
                raise _unexpected(token) from None
        if token.kind == "keyword" and token.text in {"TRUE", "FALSE"}:
            return token.text == "TRUE"
        raise _unexpected(token, "a text in single quotes, a number, true or false")

    def _next(self) -> _Token:
        if not self._tokens:
            raise UsageError("--where: the condition is incomplete")
        return self._tokens.pop(0)

    def _takes(self, text: str) -> bool:
        is_next = bool(self._tokens) and self._tokens[0] in {_Token("keyword", text), _Token("sign", text)}
        if is_next:
            self._tokens.pop(0)
        return is_next

    def _expect(self, text: str) -> None:
        token = self._next()
        if token.text != text:
            raise _unexpected(token, text)


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise UsageError(f"--where: {text[position:].strip()[:40]!r} is not part of a condition")
        position = match.end()
        kind = match.lastgroup or ""
        found = match[kind]
        yield _Token("keyword", found.upper()) if found.upper() in _KEYWORDS else _Token(kind, found)


def _unexpected(token: _Token, expected: str = "the end, AND or OR") -> UsageError:
    return UsageError(f"--where: {token.text[:40]} where {expected} was expected")
