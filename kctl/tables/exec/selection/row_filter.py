"""Conditions of `--where` for columns: the tree of `kctl.admin.records.conditions` with literals of the columns' types.

A column is one of a record, or a field of a decoded key or value such as value.customer.id.  What exists on single
records only (EXISTS, indexes of lists, a comparison of two fields, IN a field) is refused.  Pure.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from kctl.admin.records import conditions
from kctl.admin.records.conditions import All, Constant, Either, Exists, IsTrue, Json, Not, Operator, Path
from kctl.errors import UsageError
from kctl.tables.exec.schema.column_types import STRING, Columns, Struct, Type, check_path, decimal_of, kind_of

RECORD_TYPES = {
    "topic": STRING,
    "partition": "int32",
    "offset": "int64",
    "timestamp": "timestamp",
    "timestampType": "int32",
}
"""Columns of a record apart from key and value."""
INTEGER_MAX = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FLIPPED: dict[Operator, Operator] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

Column = tuple[str, ...]
Literal = str | int | float | bool | Decimal | date | datetime | bytes


class Comparison(NamedTuple):
    """COLUMN operator LITERAL."""

    column: Column
    operator: Operator
    literal: Literal


class IsIn(NamedTuple):
    """COLUMN IN (LITERAL, ...)."""

    column: Column
    literals: tuple[Literal, ...]


class Like(NamedTuple):
    """COLUMN LIKE 'pattern', with % and _."""

    column: Column
    pattern: str


class IsNull(NamedTuple):
    """COLUMN IS NULL."""

    column: Column


class Opposite(NamedTuple):
    """NOT condition."""

    condition: TypedCondition


class Every(NamedTuple):
    """Conditions joined by AND."""

    conditions: tuple[TypedCondition, ...]


class AnyOf(NamedTuple):
    """Conditions joined by OR."""

    conditions: tuple[TypedCondition, ...]


TypedCondition = Comparison | IsIn | Like | IsNull | Opposite | Every | AnyOf


def typed(condition: conditions.Condition, columns: Columns) -> TypedCondition:
    """Return the condition for the columns.  Raises UsageError if it does not fit them."""
    match condition:
        case Not(inner):
            return Opposite(typed(inner, columns))
        case All(several):
            return Every(tuple(typed(inner, columns) for inner in several))
        case Either(several):
            return AnyOf(tuple(typed(inner, columns) for inner in several))
        case conditions.Comparison(left, "in", Constant(list(literals))):
            column, type_ = _column(left, columns)
            return IsIn(column, tuple(_literal(column, Constant(literal), type_) for literal in literals))
        case conditions.Comparison(Constant() as literal, operator, Path() as path) if operator != "in":
            return typed(conditions.Comparison(path, _FLIPPED.get(operator, operator), literal), columns)
        case conditions.Comparison(Path() as path, operator, Constant() as literal) if operator != "in":
            column, type_ = _column(path, columns)
            return Comparison(column, operator, _literal(column, literal, type_))
        case conditions.Like(operand, pattern):
            column, type_ = _column(operand, columns)
            if type_ != STRING:
                raise UsageError(f"--where: LIKE requires a string, and {'.'.join(column)} is {kind_of(type_)}")
            return Like(column, pattern)
        case conditions.IsNull(operand):
            return IsNull(_column(operand, columns)[0])
        case IsTrue(operand):
            column, type_ = _column(operand, columns)
            return Comparison(column, "=", _literal(column, Constant(True), type_))
        case Exists(path):
            raise UsageError(f"--where: a column exists in all records; use {path} IS NOT NULL")
    raise UsageError("--where: a condition on columns compares a column with literals")


def _column(operand: conditions.Operand, columns: Columns) -> tuple[Column, Type]:
    """Return the names and the type of the column that an operand names.  Raises UsageError."""
    if not isinstance(operand, Path):
        raise UsageError("--where: a condition on columns compares a column with literals")
    column = (operand.field, *map(str, operand.steps))
    if any(isinstance(step, int) for step in operand.steps):
        raise UsageError(f"--where: {operand} is an item of a list, which is no column")
    return column, type_of(column, columns)


def type_of(column: Column, columns: Columns, option: str = "--where") -> Type:
    """Return the type of a column.  Raises UsageError if there is none."""
    name = column[0]
    known: dict[str, Type] = {**RECORD_TYPES, "key": columns.key.type, "value": columns.value.type}
    known |= {f"{part}_rest": STRING for part in ("key", "value") if getattr(columns, part).has_rest}
    type_ = known.get(name)
    check_path(column, type_ or Struct(), option)
    for field in column[1:]:
        type_ = dict(type_.fields).get(field) if isinstance(type_, Struct) else None
    if type_ is None:
        raise UsageError(
            f"{option}: there is no column {'.'.join(column)}; --dry-run without this option shows the columns"
        )
    return type_


def _literal(column: Column, literal: Constant, type_: Type) -> Literal:
    """Return the literal as a value of a column's type.  Raises UsageError if it has none."""
    value: Json = literal.value
    found: Literal | None = None
    if isinstance(value, bool):
        found = value if type_ == "boolean" else None
    elif isinstance(value, str):
        found = _text_as(value, type_)
    elif isinstance(value, int | float) and isinstance(type_, str):
        found = _number_as(Decimal(literal.text or repr(value)), type_)
    if found is None:
        shown = literal.text or str(value)
        raise UsageError(f"--where: {'.'.join(column)} is {kind_of(type_)}, which cannot be compared with {shown:.40}")
    return found


def _number_as(literal: Decimal, type_: str) -> Literal | None:
    if type_ == "timestamp":
        try:
            return _EPOCH + timedelta(microseconds=int(literal * 1000))
        except OverflowError:
            return None
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
