"""--where compared with Python's own operators on generated expressions, and any text: a condition or a WhereError.

Records and columns of Arrow agree on which records a condition selects.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kctl.admin.records.conditions import RecordView
from kctl.admin.records.where import EXPRESSION_CHARACTERS_MAX, WhereError, parse_where
from kctl.records.header import Record

NAMES = ("a", "b", "c")
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(-5, 5, allow_nan=False), st.text("xyz\"'\\é", max_size=3)
)
OBJECTS = st.dictionaries(st.sampled_from(NAMES), SCALARS)
OPERATORS = st.sampled_from(("==", "!=", "<", "<=", ">", ">="))
WORDS = st.sampled_from(
    ("and", "or", "not", "in", "exists", "(", ")", "[", "]", ",", ".", "==", "<", "value", "key", '"x"', "'", "1", "-")
)


def is_true(operator: str, left: Any, right: Any) -> bool:
    """The comparison by Python's operators, for JSON values of the same kind."""
    kinds = [
        type(operand) if isinstance(operand, bool) or not isinstance(operand, (int, float)) else float
        for operand in (left, right)
    ]
    if operator in {"==", "!="}:
        return (kinds[0] is kinds[1] and left == right) is (operator == "==")
    if kinds[0] is not kinds[1] or kinds[0] not in {float, str}:
        return False
    return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[operator])


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> tuple[str, Any]:
    """An expression, and the function of a JSON object that has the same meaning."""
    kind = draw(st.sampled_from(("compare", "exists", "and", "or", "not") if depth else ("compare", "exists")))
    if kind == "compare":
        name, operator, literal = draw(st.sampled_from(NAMES)), draw(OPERATORS), draw(SCALARS)
        text = f"value.{name} {operator} {json.dumps(literal)}"
        if literal is None and operator in {"==", "!="}:
            return text, lambda item: (item.get(name) is None) is (operator == "==")
        is_unknown = literal is None
        return (
            text,
            lambda item: None if is_unknown or item.get(name) is None else is_true(operator, item[name], literal),
        )
    if kind == "exists":
        name = draw(st.sampled_from(NAMES))
        return f"exists(value.{name})", lambda item: name in item
    text, condition = draw(conditions(depth=depth - 1))
    if kind == "not":
        return f"not ({text})", lambda item: None if condition(item) is None else not condition(item)
    other_text, other = draw(conditions(depth=depth - 1))
    if kind == "and":
        return f"({text}) and ({other_text})", lambda item: kleene(condition(item), other(item), decides=False)
    return f"({text}) or ({other_text})", lambda item: kleene(condition(item), other(item), decides=True)


def kleene(left: bool | None, right: bool | None, *, decides: bool) -> bool | None:
    """AND and OR of SQL: one of the two truths decides, and otherwise unknown prevails."""
    if decides in {left, right}:
        return decides
    return None if None in {left, right} else not decides


@given(conditions(), OBJECTS)
def test_expressions_mean_what_python_means(condition: tuple[str, Any], item: dict[str, Any]) -> None:
    text, meaning = condition
    record = Record(0, 0, None, json.dumps(item).encode(), ())
    assert parse_where(text).holds(RecordView("t", 0, record)) is meaning(item)


@given(st.one_of(st.text(), st.lists(WORDS).map(" ".join), st.lists(WORDS).map("".join)), st.binary())
def test_any_text_is_a_condition_or_an_error_with_a_position(text: str, value: bytes) -> None:
    try:
        condition = parse_where(text)
    except WhereError as error:
        assert 1 <= error.position <= min(len(text), EXPRESSION_CHARACTERS_MAX) + 1  # noqa: PT017 - not a must
    else:
        assert condition.holds(RecordView("t", 0, Record(0, 0, value, value, (("h", value),)))) in {True, False, None}
